// Draws views into Bokeh's figures. Everything here happens in the browser: time moves without the server.
import {at, element, settings, state} from "./state.js";

export let bokeh = null; // Bokeh's document
const models = new Map();
const model = name => {
    if (!models.has(name)) models.set(name, bokeh.get_model_by_name(name));
    return models.get(name);
};
export const begin = document => { bokeh = document; };

const LETTERS = "ABCD";
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let colors = []; // of heads and configurations, read once for each theme
const color = number => colors[number % colors.length];
const FIGURES = {
    linear: {curves: ["loss", "values"], matrices: ["map", "keys", "queries"]},
    softmax: {curves: ["loss", "omega", "mu"], matrices: ["allocation"]},
    heads: {curves: ["loss", "omega", "mu"], matrices: []},
    curve: {curves: ["loss"], matrices: []},
};
let {curves, matrices} = FIGURES.curve; // those of the view that is shown

// The figures that a run has are shown: those of one regression, of several, of heads, or its loss alone.
let chosen = "";
function chooseFigures(view) {
    const kind = view?.time ? view.kind : "";
    if (kind === chosen) return;
    chosen = kind;
    ({curves, matrices} = FIGURES[kind] ?? {curves: [], matrices: []});
    widths.clear();
    setTicks([]);
    for (const name of everything()) at(`card-${name}`).hidden = !curves.includes(name) && !matrices.includes(name);
}
const everything = () => Object.values(FIGURES).flatMap(one => [...one.curves, ...one.matrices]).filter(name => at(`card-${name}`));

export const views = []; // by configuration
export const shown = () => views[state.picked];

// Time and its axis. Figures have the logarithm as their coordinate where the axis is logarithmic.
let axis = {least: 0, most: 1}; // in coordinates
const coordinate = time => state.log ? Math.log10(Math.max(time, 1e-300)) : time;
const timeAt = place => state.log ? 10 ** (axis.least + place * (axis.most - axis.least)) : axis.least + place * (axis.most - axis.least);
export const moment = place => place >= 1 ? null : timeAt(place);
export const placeOf = time => time === null ? 1 : Math.min(Math.max((coordinate(time) - axis.least) / (axis.most - axis.least), 0), 1);
export const now = () => state.time === null ? timeAt(1) : Math.min(state.time, timeAt(1));

// The recorded point nearest to a time.
export function pointAt(time, when) {
    let low = 0, high = time.length - 1;
    while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (time[middle] <= when) low = middle; else high = middle;
    }
    return when - time[low] < time[high] - when ? low : high;
}

export function number(value, digits = 4) {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    if (typeof value === "boolean") return value ? "yes" : "no";
    if (typeof value !== "number") return String(value);
    if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
    return Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3 ? value.toExponential(digits - 1) : String(Number(value.toPrecision(digits)));
}

function setHeights(name, lists, floor = null) {
    let least = Infinity, most = -Infinity;
    for (const list of lists) for (const value of list) if (Number.isFinite(value)) {
        if (value < least) least = value;
        if (value > most) most = value;
    }
    if (least > most) [least, most] = [0, 1];
    if (floor !== null) least = Math.min(least, floor);
    const margin = 0.06 * (most - least || 1);
    model(`${name}.heights`).setv({start: least - (floor === null || least < floor ? margin : 0), end: most + 1.5 * margin});
}

// All that depends on the views: called when one has come, or when what is compared changes.
export function drawViews() {
    if (shown()?.time || settings.mode === "stored") chooseFigures(shown());
    const there = views.map((view, place) => ({view, place})).filter(({view}) => view?.time);
    const view = shown();
    if (!there.length) return;
    setTimeAxis(there.map(({view}) => view));
    const several = there.length > 1;
    const lines = {xs: [], ys: [], color: [], dash: [], width: [], name: []};
    for (const {view, place} of there) {
        lines.xs.push(Array.from(view.time, coordinate));
        lines.ys.push(view.loss);
        lines.color.push(color(place));
        lines.dash.push("solid");
        lines.width.push(place === state.picked ? 2.6 : 1.6);
        lines.name.push(several ? `configuration ${LETTERS[place]}` : "loss");
    }
    model("loss.lines").data = lines;
    const named = levelsOf(view), levels = named.map(([level]) => level);
    setHeights("loss", [...lines.ys, levels], 0);
    model("loss.levels").data = {y: levels, text: apart(levels, named.map(([, name]) => name)), x: levels.map(() => axis.most)};
    const drops = [...view?.drop_times ?? [], ...view?.drop_times_late ?? []].map(coordinate).filter(Number.isFinite);
    model("loss.drops").data = {x: drops, color: drops.map(() => color(state.picked))};
    const strips = [...view?.phases?.map((phase, place) => ({...phase, color: color(place + 4)})) ?? [], ...offOf(view)];
    model("loss.strips").data = {
        x0: strips.map(strip => Math.max(coordinate(strip.start), axis.least)),
        x1: strips.map(strip => Math.min(coordinate(strip.end), axis.most)),
        color: strips.map(strip => strip.color),
    };
    if (view?.time) drawHeads(view);
    legend("loss", several ? there.map(({place}) => [`${LETTERS[place]}`, color(place)]) : [], lossNote(view));
    drawTime();
}

// By how much predicted drops may be off, where that is known and within the axis.
function offOf(view) {
    const offs = Array.from(view?.drop_uncertainties ?? [], (off, number) => [view.drop_times[number], off]);
    return offs.map(([time, off]) => ({start: time - off, end: time + off, color: color(state.picked)}))
        .filter(({start, end}) => coordinate(start) < axis.most && coordinate(end) > axis.least); // false of what is not known
}

// Losses that the theory names, the highest first: plateaus of linear attention, limits of softmax attention.
function levelsOf(view) {
    const named = view?.limits ? Object.entries(view.limits).map(([name, level]) => [level, name])
        : Array.from(view?.levels ?? [], (level, number) => [level, view.level_names[number]]);
    return named.sort(([one], [other]) => other - one);
}

// Names of levels that are too near to the one above to be read are left out.
function apart(levels, names) {
    const {start, end} = model("loss.heights");
    let last = Infinity;
    return levels.map((level, number) => {
        if (last - level < 0.055 * (end - start)) return "";
        last = level;
        return names[number] ?? "";
    });
}

function lossNote(view) {
    const parts = [];
    if (view?.limits) parts.push("dotted: limits of the loss");
    else if (view?.levels?.length) parts.push("dotted: predicted levels");
    if (view?.drop_times_late) parts.push("dashed: lower and upper bounds that theory predicts for the time at which each task emerges");
    else if (view?.drop_times?.length) {
        const late = view.drop_times.filter(time => time > view.time[view.time.length - 1]).length;
        parts.push(`dashed: predicted drops${late ? ` (${late} after the end)` : ""}`);
        if (offOf(view).length) parts.push("shaded: ±, within which 95 of 100 predicted times are");
    }
    if (view?.phases?.length) parts.push(`shaded: ${view.phases.map(phase => phase.name).join(", ")}`);
    return parts.join("; ");
}

function setTimeAxis(shown) {
    const most = Math.max(...shown.map(view => view.time[view.time.length - 1]));
    if (state.log) {
        const first = Math.min(...shown.map(view => view.time.find(time => time > 0) ?? most));
        axis = {least: Math.log10(Math.max(Math.min(first, most / 10), most * 1e-3)), most: Math.log10(most)};
    } else axis = {least: 0, most: most || 1};
    model("time").setv({start: axis.least, end: axis.most});
    const ticks = [];
    if (state.log) for (let power = Math.ceil(axis.least - 1e-9); power <= axis.most + 1e-9; power++) ticks.push(power);
    if (String(ticks) !== decades) setTicks(ticks);
    const label = shown[0].time_name === "step" ? "step" : `time ${shown[0].time_name}`;
    for (const name of curves) if (model(`${name}.time_axis`).axis_label !== label) model(`${name}.time_axis`).axis_label = label;
}

// The ticks of a logarithmic axis are its decades; of a linear one, Bokeh's own. Set when they change: it is slow.
let decades = "";
function setTicks(ticks) {
    decades = String(ticks);
    const raised = power => String(power).replace(/./g, digit => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(digit)]);
    for (const name of curves) {
        const along = model(`${name}.time_axis`), fixed = model(`${name}.decades`);
        along.linear ??= along.ticker;
        fixed.ticks = ticks;
        along.major_label_overrides = new Map(ticks.map(power => [power, `10${raised(power)}`]));
        along.ticker = ticks.length ? fixed : along.linear;
    }
}

// A curve for each head (and task), with the theory's beside it.
function drawHeads(view) {
    for (const name of curves.slice(1)) {
        const array = view[name];
        if (!array) continue;
        const lines = {xs: [], ys: [], color: [], dash: [], width: [], name: []};
        const xs = Array.from(view.time, coordinate);
        const add = (ys, head, dash, what) => {
            lines.xs.push(xs);
            lines.ys.push(ys);
            lines.color.push(color(head));
            lines.dash.push(dash);
            lines.width.push(dash === "solid" ? 2 : 1.4);
            lines.name.push(what);
        };
        const heads = array.shape[1], tasks = array.shape[2] ?? 1;
        for (let head = 0; head < heads; head++) for (let task = 0; task < tasks; task++) {
            const what = tasks > 1 ? `head ${head + 1}, task ${task + 1}` : `head ${head + 1}`;
            add(column(array, head, task), head, "solid", what);
        }
        const theory = view[`${name}_theory`];
        let predicted = false;
        if (theory) for (let head = 0; head < heads; head++) {
            const ys = column(theory, head);
            if (ys.some(Number.isFinite)) { add(ys, head, "dashed", `head ${head + 1}, theory`); predicted = true; }
        }
        model(`${name}.lines`).data = lines;
        setHeights(name, lines.ys);
        legend(name, Array.from({length: heads}, (_, head) => [`head ${head + 1}`, color(head)]), predicted ? "dashed: the scalar equation" : "");
    }
    layOut(view);
}

const column = (array, head, task = 0) => { // of an array (T, H) or (T, H, I)
    const [length, heads, tasks = 1] = array.shape, made = new Float64Array(length);
    for (let row = 0; row < length; row++) made[row] = array[(row * heads + head) * tasks + task];
    return made;
};

function legend(name, entries, note) {
    const place = at(`note-${name}`);
    const text = note + JSON.stringify(entries);
    if (place.dataset.text === text) return;
    place.dataset.text = text;
    place.replaceChildren(note);
    for (const [words, color] of entries) {
        place.append(element("span", {}, element("i", {style: `background: ${color}`}), words), " ");
    }
}

// Matrices: blocks of cells, each the part [offset, offset + rows × columns) of the array of a moment.
const blocks = {};
function blocksOf(name, view) {
    const sized = (title, array, rows, columns, offset, stride) => ({title, array, rows, columns, offset, stride});
    if (name === "map") {
        if (!view.map) return [];
        const dim = view.target.shape[0];
        return [sized("map", view.map, dim, dim, 0, dim * dim), sized("target", view.target, dim, dim, 0, 0)];
    }
    if (name === "allocation") {
        const [, heads, tasks] = view.allocation.shape;
        return [sized("", view.allocation, heads, tasks, 0, heads * tasks)];
    }
    const array = view[name] ?? (name === "keys" ? view.merged : null);
    if (!array) return [];
    const [, heads, rows, columns] = array.shape, size = rows * columns;
    return Array.from({length: heads}, (_, head) => sized(`head ${head + 1}`, array, rows, columns, head * size, heads * size));
}

const largests = new WeakMap(); // by array: heads share one
function largest(array) {
    if (!largests.has(array)) {
        let most = 0;
        for (let place = 0; place < array.length; place++) if (Math.abs(array[place]) > most) most = Math.abs(array[place]);
        largests.set(array, most);
    }
    return largests.get(array);
}

const widths = new Map();
export const resized = () => widths.clear();

function layOut(view) {
    for (const name of matrices) {
        const card = at(`card-${name}`);
        const made = blocksOf(name, view);
        blocks[name] = made;
        const merged = name === "keys" && Boolean(view.merged);
        if (card.hidden !== !made.length || card.classList.contains("whole") !== merged) {
            card.hidden = !made.length;
            card.classList.toggle("whole", merged);
            if (name === "keys") at("title-keys").textContent = merged ? "Merged key and query" : "Keys";
            widths.delete(name);
        }
        if (!made.length) continue;
        const {rows, columns} = made[0];
        if (!widths.has(name)) widths.set(name, Math.max(card.clientWidth - 34, 120)); // asking makes the browser lay out
        const width = widths.get(name);
        const across = Math.max(1, Math.min(made.length, name === "map" ? 2 : 4, Math.floor(width / (14 * (columns + 1)))));
        const down = Math.ceil(made.length / across);
        const cell = Math.min(rows > 2 ? 28 : 44, width / (across * (columns + 1)));
        const high = rows + Math.max(1.2, 20 / cell), height = Math.ceil(down * high * cell + 12);
        const plot = model(name);
        if (plot.height !== height) plot.height = height;
        model(`${name}.across`).setv({start: 0, end: width / cell});
        model(`${name}.down`).setv({start: -down * high, end: 0});
        const cells = {x: [], y: [], what: [], value: []}, titles = {x: [], y: [], text: []};
        let most = 0;
        made.forEach((block, number) => {
            const left = (number % across) * (columns + 1) + 0.5, top = -Math.floor(number / across) * high - (high - rows);
            titles.x.push(left + columns / 2);
            titles.y.push(top + 0.1);
            titles.text.push(block.title);
            for (let row = 0; row < rows; row++) for (let column = 0; column < columns; column++) {
                cells.x.push(left + column + 0.5);
                cells.y.push(top - row - 0.5);
                cells.what.push(whatOf(name, block.title, row, column));
                cells.value.push(0);
            }
            most = Math.max(most, largest(block.array));
        });
        model(`${name}.colors`).setv({low: -most || -1, high: most || 1, palette});
        model(`${name}.titles`).data = titles;
        model(`${name}.cells`).data = cells;
        legend(name, [], name === "allocation" ? "a row for each head, a column for each task"
            : `in the eigenbasis; colors from ${number(-most, 2)} to ${number(most, 2)}`);
    }
}

function whatOf(name, title, row, column) {
    if (name === "map") return `${title}, row ${row + 1}, column ${column + 1}`;
    if (name === "allocation") return `head ${row + 1}, task ${column + 1}`;
    return `${title}, ${shown().merged ? "row" : "pair"} ${row + 1}, component ${column + 1}`;
}

// All that depends on the time: dots, cursors and matrices.
export function drawTime() {
    const time = now(), where = coordinate(time);
    for (const name of curves) {
        model(`${name}.cursor`).location = where;
        const lines = model(`${name}.lines`).data, dots = {x: [], y: [], color: []};
        lines.xs.forEach((xs, number) => {
            if (lines.dash[number] !== "solid") return;
            const point = pointAt(xs, where);
            dots.x.push(xs[point]);
            dots.y.push(lines.ys[number][point]);
            dots.color.push(lines.color[number]);
        });
        model(`${name}.dots`).data = dots;
    }
    const view = shown();
    if (!view?.time) return;
    const point = pointAt(view.time, time);
    for (const name of matrices) {
        const values = [];
        for (const {array, rows, columns, offset, stride} of blocks[name] ?? [])
            for (let cell = 0; cell < rows * columns; cell++) values.push(array[point * stride + offset + cell]);
        if (values.length) model(`${name}.cells`).data = {...model(`${name}.cells`).data, value: values};
    }
    const step = view.steps && view.time_name !== "step" ? `, step ${view.steps[point]}` : "";
    at("now").value = `${view.time_name} = ${number(time)}${step}`;
}

// Colors from negative over zero, which is the color of the page, to positive.
let palette = [];
function mixed() {
    const [negative, zero, positive] = ["--negative", "--zero", "--positive"].map(
        name => css(name).match(/[0-9a-f]{2}/gi).map(part => parseInt(part, 16)));
    const part = (from, to, share) => from.map((value, place) => Math.round(value + share * (to[place] - value)));
    return Array.from({length: 41}, (_, step) => {
        const share = (step - 20) / 20;
        const [red, green, blue] = part(zero, share < 0 ? negative : positive, Math.abs(share) ** 0.8);
        return (red << 24 | green << 16 | blue << 8 | 255) >>> 0;
    });
}

// Bokeh's texts, axes and grids in the colors of the page.
export function dress() {
    palette = mixed();
    colors = Array.from({length: 8}, (_, number) => css(`--c${number + 1}`));
    const text = css("--text"), soft = css("--soft"), line = css("--line");
    for (const name of everything().filter(name => bokeh.get_model_by_name(`${name}.cursor`))) {
        for (const end of ["time_axis", "axis"]) model(`${name}.${end}`).setv({
            axis_line_color: line, major_tick_line_color: line, minor_tick_line_color: line, major_label_text_color: soft, axis_label_text_color: soft,
        });
        for (const grid of model(name).center) if ("grid_line_color" in grid) grid.grid_line_color = line;
        model(`${name}.level_names`).glyph.text_color = {value: soft};
        model(`${name}.cursor`).line_color = text;
    }
    for (const name of everything().filter(name => bokeh.get_model_by_name(`${name}.titles`))) model(`${name}.title_words`).glyph.text_color = {value: soft};
}
