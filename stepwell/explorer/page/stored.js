// Runs of the store and figures of the reproduction: lists from which one is chosen.
import {number} from "./draw.js";
import {at, element, state} from "./state.js";

const cell = (kind, ...content) => element(kind, {}, ...content);

// `set(name, text)` sets a control: the run or the figure that is shown.
export async function beginStored(set) {
    let waiting = 0;
    at("filter").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => list(set), 250); });
    at("sort").addEventListener("change", () => list(set));
    at("control-figure").addEventListener("change", showFigure);
    await Promise.all([list(set), figures()]);
}

async function list(set) {
    const words = new URLSearchParams({where: at("filter").value, sort: at("sort").value});
    const got = await fetch(`runs?${words}`);
    at("filter-error").hidden = got.ok;
    if (!got.ok) { at("filter-error").textContent = await got.text(); return; }
    const {columns, rows, total} = await got.json();
    const open = name => {
        const button = element("button", {type: "button", title: `Open ${name}`}, name.slice(0, 12));
        button.addEventListener("click", () => { set("run", name); scrollTo({top: 0}); });
        return button;
    };
    at("runs").replaceChildren(
        cell("tr", ...columns.map(column => cell("th", column))),
        ...rows.map(([name, ...values]) => cell("tr", cell("td", open(name)), ...values.map(value => cell("td", number(value))))));
    at("runs-note").textContent = total > rows.length ? `${rows.length} of ${total} runs` : total ? `${total} runs` : "There are no such runs.";
    if (at("sort").options.length === 1) for (const column of columns.slice(1)) at("sort").append(new Option(column, column));
    for (const [name] of rows) if (![...at("control-run").options].some(one => one.value === name)) at("control-run").append(new Option(name.slice(0, 12), name));
}

let known = [];
async function figures() {
    const got = await fetch("figures");
    known = got.ok ? (await got.json()).figures : [];
    for (const {name, title} of known) if (![...at("control-figure").options].some(one => one.value === name)) at("control-figure").append(new Option(title || name, name));
    for (const option of at("control-figure").options) option.textContent = known.find(one => one.name === option.value)?.title || option.textContent;
    showFigure();
}

function showFigure() {
    const name = state.configurations[0].figure ?? "", figure = known.find(one => one.name === name);
    at("card-figure").hidden = !figure;
    if (!figure) return;
    at("title-figure").textContent = figure.title || name;
    at("figure-caption").textContent = figure.caption;
    at("figure-image").src = `figure/${name}.${figure.files.includes("svg") ? "svg" : figure.files[0]}`;
    at("figure-image").alt = figure.title || name;
    at("figure-claims").replaceChildren(...figure.claims.map(([statement, passed]) => cell("li", `${passed ? "✓ holds" : "✗ fails"}: ${statement}`)));
}
