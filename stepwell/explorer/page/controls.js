// The controls: native inputs, made by the server. Sliders and boxes show one configuration and change it.
import {controls, numbersOf, shows, state, textOf} from "./state.js";

const SLIDER_END = 60; // of whole numbers without a natural end, such as seeds: larger ones are typed

const row = name => document.querySelector(`[data-control="${name}"]`);
const box = name => document.getElementById(`control-${name}`);
const lists = control => control.kind === "numbers" || control.kind === "integers";

// A slider and a value, linear or logarithmic; 0 is a stop of its own where the control has it.
function bounds(control, configuration) {
    if (!control.log) {
        let most = control.most;
        if (control.name === "rank") most = Number(configuration.dim) || most;
        if (control.name === "spikes") most = Math.max(1, (Number(configuration.dim) || most) - 1);
        if (control.kind === "integer" && most > 1e5) most = SLIDER_END;
        return {min: control.least, max: most, step: control.kind === "integer" ? 1 : control.step};
    }
    const least = Math.log10(control.least || control.log_least);
    return {min: control.least ? least : least - 0.1, max: Math.log10(control.most), step: control.step > 0.5 ? 0.01 : control.step};
}

function fromSlider(control, place, range) {
    if (!control.log) return control.kind === "integer" ? Math.round(place) : Number(place.toPrecision(6));
    if (!control.least && place <= range.min + 0.05) return 0;
    const value = control.kind === "integer" ? Math.round(10 ** place) : Number((10 ** place).toPrecision(3));
    return Math.min(Math.max(value, control.least), control.most);
}

const toSlider = (control, value, range) => control.log ? (value > 0 ? Math.log10(value) : range.min) : value;

// What must follow when one value changes: lists as long as there are dimensions, ranks no larger than they are.
function follow(configuration, name) {
    const resize = (list, length) => {
        const values = numbersOf(configuration[list] ?? "");
        if (values.length && values.length !== length)
            configuration[list] = textOf(Array.from({length}, (_, i) => values[Math.min(i, values.length - 1)]));
    };
    if (name === "dim" && Number.isInteger(Number(configuration.dim)) && Number(configuration.dim) > 0) {
        const dim = Number(configuration.dim);
        resize("eigenvalues", dim);
        resize("task_eigenvalues", dim);
        if (Number(configuration.rank) > dim) configuration.rank = String(dim);
        if (Number(configuration.spikes) > Math.max(dim - 1, 1)) configuration.spikes = String(Math.max(dim - 1, 1));
    }
    if (name === "dims" && numbersOf(configuration.strengths).length > 1)
        resize("strengths", numbersOf(configuration.dims).length);
}

// `changed(event)` is called after the picked configuration has changed; `eigenvalues()` gives those that are shown.
export function connectControls(changed, eigenvalues) {
    const set = (name, text, event) => {
        const configuration = state.configurations[state.picked];
        configuration[name] = text;
        follow(configuration, name);
        if (name === "spectrum" && text === "custom" && !configuration.eigenvalues) configuration.eigenvalues = textOf(eigenvalues());
        show();
        changed(event);
    };
    for (const control of controls.values()) {
        const input = box(control.name);
        input.addEventListener(input.tagName === "SELECT" ? "change" : "input", event => set(control.name, input.value, event));
        const slider = row(control.name).querySelector(".slider");
        slider?.addEventListener("input", event => {
            const range = bounds(control, state.configurations[state.picked]);
            set(control.name, String(fromSlider(control, Number(slider.value), range)), event);
        });
        if (lists(control)) row(control.name).querySelector(".bars").addEventListener("input", event => {
            const bars = [...row(control.name).querySelectorAll(".bars input")];
            set(control.name, textOf(bars.map(one => fromSlider(control, Number(one.value), bounds(control, {})))), event);
        });
        const hint = row(control.name).querySelector(".hint");
        hint.title = document.getElementById(`help-${control.name}`).textContent;
        hint.addEventListener("click", () => {
            const help = document.getElementById(`help-${control.name}`);
            help.hidden = !help.hidden;
            hint.setAttribute("aria-expanded", String(!help.hidden));
        });
    }
    document.getElementById("controls").addEventListener("submit", event => event.preventDefault());
}

// Write the picked configuration into the inputs. What is being typed in is left alone.
export function show() {
    const configuration = state.configurations[state.picked];
    for (const control of controls.values()) {
        const text = configuration[control.name];
        row(control.name).hidden = !shows(control, configuration);
        const input = box(control.name);
        if (control.kind === "name" && ![...input.options].some(one => one.value === text)) input.append(new Option(text.slice(0, 12), text));
        if (input.value !== text && (input !== document.activeElement || input.tagName === "SELECT")) input.value = text;
        const slider = row(control.name).querySelector(".slider");
        if (slider) {
            const range = bounds(control, configuration);
            Object.assign(slider, range);
            if (slider !== document.activeElement || Math.abs(Number(slider.value) - toSlider(control, Number(text), range)) > range.step)
                slider.value = toSlider(control, Number(text), range);
            slider.setAttribute("aria-valuetext", `${text} ${control.unit}`.trim());
        }
        if (lists(control)) showBars(control, configuration);
    }
}

function showBars(control, configuration) {
    const place = row(control.name).querySelector(".bars");
    let values = numbersOf(configuration[control.name]);
    if (!values.length && "dim" in configuration) values = Array(Math.min(Number(configuration.dim) || 0, 8)).fill(1);
    if (values.length > 8 || values.some(isNaN)) values = [];
    while (place.children.length > values.length) place.lastChild.remove();
    while (place.children.length < values.length) {
        const number = place.children.length + 1;
        const label = document.createElement("label");
        const bar = Object.assign(document.createElement("input"), {type: "range"});
        bar.setAttribute("aria-label", `${control.label}, number ${number}`);
        label.append(bar, String(number));
        place.append(label);
    }
    const range = bounds(control, configuration);
    if (!control.log && control.kind === "numbers") range.max = Math.min(control.most, Math.max(1, ...values) * 1.0001);
    values.forEach((value, number) => {
        const bar = place.children[number].firstChild;
        if (bar === document.activeElement) range.max = Math.max(range.max, Number(bar.max));
        Object.assign(bar, range);
        bar.value = toSlider(control, value, range);
        bar.setAttribute("aria-valuetext", String(value));
    });
}

// Errors beside the controls that caused them; those of no control of this page stand above the pictures.
export function showProblems(problems) {
    const others = [];
    for (const [name, message] of Object.entries(problems)) if (!controls.has(name) || row(name).hidden) others.push(message);
    for (const name of ["", ...controls.keys()]) {
        const place = document.getElementById(`error-${name}`);
        const message = name ? (row(name).hidden ? "" : problems[name] ?? "") : others.join(" ");
        place.textContent = message;
        place.hidden = !message;
        if (name) for (const input of row(name).querySelectorAll("input, select")) input.setAttribute("aria-invalid", String(Boolean(message)));
    }
}
