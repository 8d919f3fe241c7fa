// What every control of up to four configurations is set to, as texts, and the address that says so.
export const settings = JSON.parse(document.getElementById("settings").textContent);
export const controls = new Map(settings.controls.map(control => [control.name, control]));

const PREFIXES = ["", "b.", "c.", "d."];
const PAGE_WORDS = ["t", "axis", "tour", "picked"];

export const textOf = value => Array.isArray(value) ? value.join(",") : String(value);
export const numbersOf = text => text.split(",").filter(part => part.trim()).map(Number);

export const state = {
    configurations: [], // each {name: text} with every control
    picked: 0, // the one that the controls change
    time: null, // the time that is shown; null for the end
    log: false,
};

const defaults = () => Object.fromEntries([...controls.values()].map(one => [one.name, textOf(one.default)]));

export function readAddress() {
    const words = Object.fromEntries(new URLSearchParams(location.search));
    const own = prefix => Object.entries(words)
        .filter(([name]) => prefix ? name.startsWith(prefix) : !PREFIXES.some(one => one && name.startsWith(one)))
        .map(([name, text]) => [name.slice(prefix.length), text])
        .filter(([name]) => name && name !== "mode" && !(prefix === "" && PAGE_WORDS.includes(name)));
    state.configurations = [{...defaults(), ...Object.fromEntries(own(""))}];
    for (const prefix of PREFIXES.slice(1))
        if (Object.keys(words).some(name => name.startsWith(prefix)))
            state.configurations.push({...state.configurations[0], ...Object.fromEntries(own(prefix))});
    state.picked = Math.min(Math.max(Number(words.picked) || 0, 0), state.configurations.length - 1);
    state.time = words.t !== undefined && isFinite(Number(words.t)) ? Number(words.t) : null;
    state.log = words.axis === "log";
    return words;
}

// The words that describe the configurations: of the first what differs from the defaults, of others from the first.
export function words() {
    const [first, ...others] = state.configurations;
    const plain = defaults();
    const made = settings.mode === "linear" ? {} : {mode: settings.mode};
    for (const [name, text] of Object.entries(first)) if (text !== plain[name]) made[name] = text;
    others.forEach((one, number) => {
        const prefix = PREFIXES[number + 1];
        const changed = Object.entries(one).filter(([name, text]) => text !== first[name]);
        if (!changed.length) made[prefix] = "";
        for (const [name, text] of changed) made[prefix + name] = text;
    });
    return made;
}

// Commas and colons are left as they are: a link is to be read.
export const query = made => new URLSearchParams(made).toString().replaceAll("%2C", ",").replaceAll("%3A", ":");

export function writeAddress() {
    const made = words();
    if (state.picked) made.picked = state.picked;
    if (state.time !== null) made.t = Number(state.time.toPrecision(4));
    if (state.log) made.axis = "log";
    const text = query(made);
    history.replaceState(null, "", text ? `?${text}` : location.pathname);
}

// Whether a control means anything, as the others are set.
export const shows = (control, configuration) => !control.when.length || control.when.some(
    alternative => alternative.every(([name, values]) => values.includes(configuration[name])));
