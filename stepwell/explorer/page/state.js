// What up to four configurations are set to, as words by dotted name; what is not said has its default.
export const at = id => document.getElementById(id);
export const settings = JSON.parse(at("settings").textContent);

export function element(kind, attributes, ...content) {
    const made = document.createElement(kind);
    for (const [name, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(name, value);
    made.append(...content);
    return made;
}

const PREFIXES = ["", "b.", "c.", "d."];
const PAGE_WORDS = ["t", "axis", "tour", "picked"];

export const textOf = value => Array.isArray(value) ? value.join(",") : String(value);
export const numbersOf = text => text.split(",").filter(part => part.trim()).map(Number);

export const state = {
    configurations: [], // each {name: text} with the words that were given
    values: [], // each {name: text} with every value, as the server has resolved it
    kinds: [], // each {section: [names]} with the kinds that go together
    picked: 0, // the one that the controls change
    time: null, // the time that is shown; null for the end
    log: false,
};

// The text of a control: as it was given, or as the server has resolved it.
export const valueOf = name => state.configurations[state.picked][name] ?? state.values[state.picked]?.[name] ?? "";

export function readAddress() {
    const words = Object.fromEntries(new URLSearchParams(location.search));
    const own = prefix => Object.entries(words)
        .filter(([name]) => prefix ? name.startsWith(prefix) : !PREFIXES.some(one => one && name.startsWith(one)))
        .map(([name, text]) => [name.slice(prefix.length), text])
        .filter(([name]) => name && name !== "mode" && !(prefix === "" && PAGE_WORDS.includes(name)));
    const given = made => Object.fromEntries(Object.entries(made).filter(([, text]) => text !== ""));
    state.configurations = [given(Object.fromEntries(own("")))];
    for (const prefix of PREFIXES.slice(1))
        if (Object.keys(words).some(name => name.startsWith(prefix)))
            state.configurations.push(given({...state.configurations[0], ...Object.fromEntries(own(prefix))}));
    state.values = state.configurations.map(() => settings.values ?? {});
    state.kinds = state.configurations.map(() => settings.fitting ?? {});
    state.picked = Math.min(Math.max(Number(words.picked) || 0, 0), state.configurations.length - 1);
    state.time = words.t !== undefined && isFinite(Number(words.t)) ? Number(words.t) : null;
    state.log = words.axis === "log";
    return words;
}

// The words that describe the configurations: of the first what was given, of others what differs from it.
export function words() {
    const [first, ...others] = state.configurations;
    const made = settings.mode === "stored" ? {mode: "stored"} : {};
    Object.assign(made, first);
    others.forEach((one, number) => {
        const prefix = PREFIXES[number + 1];
        const names = new Set([...Object.keys(first), ...Object.keys(one)]);
        const changed = [...names].filter(name => one[name] !== first[name]);
        if (!changed.length) made[prefix] = "";
        for (const name of changed) made[prefix + name] = one[name] ?? "";
    });
    return made;
}

// A word of the picked configuration as the address has it.
export const prefixed = name => PREFIXES[state.picked] + name;

// Commas, colons and slashes are left as they are: a link is to be read.
export const query = made => new URLSearchParams(made).toString().replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%2F", "/");

export function writeAddress() {
    const made = words();
    if (state.picked) made.picked = state.picked;
    if (state.time !== null) made.t = Number(state.time.toPrecision(4));
    if (state.log) made.axis = "log";
    const text = query(made);
    history.replaceState(null, "", text ? `?${text}` : location.pathname);
}
