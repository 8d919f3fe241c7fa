// The controls: native inputs, made from the declarations of the chosen kinds. They show one configuration and change it.
import {at, element, numbersOf, settings, state, textOf, valueOf} from "./state.js";

const SECTIONS = {task: "Task", model: "Model", objective: "Objective", training: "Training"};
const id = name => name.replaceAll(".", "-");
const row = name => document.querySelector(`[data-control="${name}"]`);
const box = name => at(`control-${id(name)}`);
const lists = control => control.shape === "numbers" || control.shape === "integers";
const whole = control => control.shape === "integer" || control.shape === "integers";
const shown = new Map(); // controls on the page, by name
let changed = () => {};

// --- making ---------------------------------------------------------------------------------------------------------

function choiceOf(section) {
    const help = [settings.hints[section], ...Object.entries(settings.kinds[section]).map(([name, words]) => `${name}: ${words}`)];
    return {name: `${section}.kind`, label: section === "task" ? "Kind of task" : section === "model" ? "Kind of model" : SECTIONS[section],
        shape: "choice", choices: Object.keys(settings.kinds[section]), help: help.filter(Boolean).join(" "), when: [], unit: ""};
}

function make(control) {
    const own = id(control.name), described = `help-${own} error-${own}`;
    const hint = element("button", {type: "button", class: "hint", "aria-label": `Explain: ${control.label}`, "aria-expanded": "false",
        "aria-controls": `help-${own}`, title: control.help}, "?");
    const help = element("p", {class: "help", id: `help-${own}`, hidden: ""}, control.help);
    hint.addEventListener("click", () => {
        help.hidden = !help.hidden;
        hint.setAttribute("aria-expanded", String(!help.hidden));
    });
    const label = element("span", {class: "label"}, element("label", {for: `control-${own}`}, control.label), hint);
    if (control.unit) label.append(element("small", {class: "unit"}, control.unit));
    const made = element("div", {class: "control", "data-control": control.name, "data-shape": control.shape}, label);
    const input = control.shape === "choice"
        ? element("select", {id: `control-${own}`, "aria-describedby": described}, ...control.choices.map(word => element("option", {value: word}, word)))
        : element("input", {id: `control-${own}`, class: control.slider && !lists(control) ? "number" : "wide", type: "text", spellcheck: "false", "aria-describedby": described});
    input.addEventListener(control.shape === "choice" ? "change" : "input", event => set(control.name, input.value, event));
    if (control.slider && !lists(control)) {
        const slider = element("input", {class: "slider", type: "range", "aria-label": control.label, "aria-describedby": described, "data-for": control.name});
        slider.addEventListener("input", event => set(control.name, String(fromSlider(control, Number(slider.value))), event));
        made.append(slider);
    }
    made.append(input);
    if (lists(control) && control.slider) {
        const bars = element("span", {class: "bars", role: "group", "aria-label": `${control.label}, one slider each`});
        bars.addEventListener("input", event => set(control.name,
            textOf([...bars.querySelectorAll("input")].map(one => fromSlider(control, Number(one.value)))), event));
        made.append(bars);
    }
    made.append(help, element("p", {class: "error", id: `error-${own}`, role: "alert", hidden: ""}));
    shown.set(control.name, control);
    return made;
}

// The controls of a section, made anew when its kind changes.
function fill(section) {
    const place = at(`section-${section}`), kind = valueOf(`${section}.kind`);
    if (place.dataset.kind === kind || !settings.sections[section][kind]) return;
    const open = place.querySelector("details")?.open;
    for (const one of place.querySelectorAll("[data-control]")) if (one.dataset.control !== `${section}.kind`) shown.delete(one.dataset.control);
    const choice = row(`${section}.kind`) ?? make(choiceOf(section));
    const others = section === "model" ? [settings.seed] : section === "training" ? settings.sections.record.record : [];
    const controls = [...settings.sections[section][kind], ...others];
    const more = controls.filter(one => one.more).map(make);
    const folded = element("details", {class: "more"}, element("summary", {}, "More"), ...more);
    folded.open = Boolean(open);
    place.replaceChildren(place.firstElementChild, choice, ...controls.filter(one => !one.more).map(make), ...more.length ? [folded] : []);
    place.dataset.kind = kind;
}

// --- sliders --------------------------------------------------------------------------------------------------------

function range(control) {
    const [low, high] = control.slider;
    if (!control.log) return {min: low, max: high, step: whole(control) ? 1 : Number(((high - low) / 200).toPrecision(1))};
    return {min: Math.log10(low), max: Math.log10(high), step: 0.01};
}

function fromSlider(control, place) {
    if (!control.log) return whole(control) ? Math.round(place) : Number(place.toPrecision(6));
    const value = whole(control) ? Math.round(10 ** place) : Number((10 ** place).toPrecision(3));
    return Math.min(Math.max(value, control.slider[0]), control.slider[1]);
}

// What is no number, such as "converged", is at the end.
function toSlider(control, value, {max}) {
    if (!Number.isFinite(value)) return max;
    return control.log ? Math.log10(Math.max(value, 1e-300)) : value;
}

// --- changing -------------------------------------------------------------------------------------------------------

function set(name, text, event) {
    const configuration = state.configurations[state.picked];
    if (name === "task.spectrum") {
        const eigenvalues = numbersOf(valueOf("task.eigenvalues"));
        delete configuration["task.eigenvalues"];
        if (text === "custom") configuration["task.eigenvalues"] = textOf(eigenvalues.map(value => Number(value.toPrecision(3))));
        else if (eigenvalues.length !== 4) configuration["task.dim"] = String(eigenvalues.length);
    }
    if (name.endsWith(".kind")) { // what follows from it is chosen anew
        const sections = Object.keys(SECTIONS);
        for (const later of sections.slice(sections.indexOf(name.split(".")[0]) + 1)) delete configuration[`${later}.kind`];
    }
    if (text.trim() === "") delete configuration[name]; else configuration[name] = text;
    show();
    changed(event, name);
}

// `then(event, name)` is called after the picked configuration has changed.
export function connectControls(then) {
    changed = then;
    at("controls").addEventListener("submit", event => event.preventDefault());
    if (settings.mode === "stored") for (const name of ["run", "figure"]) box(name).addEventListener("change", event => set(name, box(name).value, event));
}

// Write the picked configuration into the inputs. What is being typed in is left alone.
export function show() {
    if (settings.mode === "stored") { showStored(); return; }
    for (const section of Object.keys(SECTIONS)) fill(section);
    for (const [name, control] of shown) {
        const text = valueOf(name), input = box(name), section = name.split(".")[0];
        row(name).hidden = !control.when.every(([other, values]) => values.includes(valueOf(`${section}.${other}`)));
        if (name.endsWith(".kind")) for (const option of input.options) option.disabled = !(state.kinds[state.picked]?.[section] ?? [option.value]).includes(option.value);
        if (input.value !== text && (input !== document.activeElement || input.tagName === "SELECT")) input.value = text;
        const slider = row(name).querySelector(".slider");
        if (slider) {
            const bounds = range(control), place = toSlider(control, text.trim() ? Number(text) : NaN, bounds);
            Object.assign(slider, bounds);
            if (slider !== document.activeElement || Math.abs(Number(slider.value) - place) > bounds.step) slider.value = place;
            slider.setAttribute("aria-valuetext", `${text} ${control.unit}`.trim());
        }
        if (lists(control) && control.slider) showBars(control, text);
    }
}

function showStored() {
    for (const name of ["run", "figure"]) {
        const input = box(name), text = valueOf(name);
        if (![...input.options].some(one => one.value === text)) input.append(new Option(text.slice(0, 12), text));
        input.value = text;
    }
}

function showBars(control, text) {
    const place = row(control.name).querySelector(".bars");
    let values = numbersOf(text);
    if (!values.length && control.name === "task.task_eigenvalues") values = numbersOf(valueOf("task.eigenvalues")).map(() => 1);
    if (values.length > 8 || values.some(isNaN)) values = [];
    while (place.children.length > values.length) place.lastChild.remove();
    while (place.children.length < values.length) {
        const number = place.children.length + 1;
        const bar = element("input", {type: "range", "aria-label": `${control.label}, number ${number}`});
        place.append(element("label", {}, bar, String(number)));
    }
    const bounds = range(control);
    if (!control.log && control.shape === "numbers") Object.assign(bounds, {max: Math.min(bounds.max, Math.max(1, ...values) * 1.0001), step: 0.01});
    values.forEach((value, number) => {
        const bar = place.children[number].firstChild;
        if (bar === document.activeElement) bounds.max = Math.max(bounds.max, Number(bar.max));
        Object.assign(bar, bounds);
        bar.value = toSlider(control, value, bounds);
        bar.setAttribute("aria-valuetext", String(value));
    });
}

// Errors beside the controls that caused them; those of no control of this page stand above the figures.
export function showProblems(problems) {
    const others = [];
    for (const [name, message] of Object.entries(problems)) if (!row(name) || row(name).hidden) others.push(message);
    at("error-").textContent = others.join(" ");
    at("error-").hidden = !others.length;
    for (const one of document.querySelectorAll("[data-control]")) {
        const name = one.dataset.control, message = one.hidden ? "" : problems[name] ?? "", place = at(`error-${id(name)}`);
        place.textContent = message;
        place.hidden = !message;
        for (const input of one.querySelectorAll("input, select")) input.setAttribute("aria-invalid", String(Boolean(message)));
        if (message && one.closest("details")) one.closest("details").open = true;
    }
}
