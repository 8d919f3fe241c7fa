// The page: gathers the state, asks the server for the newest, and draws what comes.
import {connect} from "./connection.js";
import {connectControls, show, showProblems} from "./controls.js";
import * as draw from "./draw.js";
import {at, element, prefixed, query, readAddress, settings, state, words, writeAddress} from "./state.js";
import {beginStored} from "./stored.js";
import {beginTour} from "./tour.js";

const LETTERS = "ABCD";

// For tests and benchmarks, in milliseconds: from an input to the paint of its answer (`latencies`), from any input to
// the paint of its answer or a newer one (`waits`), times of frames while playing; and how often the server was asked.
const stepwell = {latencies: [], waits: [], frames: [], views: draw.views, state, ready: false, busy: false, asked: 0};
window.stepwell = stepwell;

let send = null; // takes a request
let sent = 0, answered = 0, cancelled = 0; // numbers of requests
let asked = 0; // when the page began to wait
const inputs = []; // [time of an input event, number of the request that has it]
const problems = []; // by configuration

// --- asking ---------------------------------------------------------------------------------------------------------

// The server computes one request, keeps one waiting, and lets the newest win.
function ask(changed) {
    if (!send) return;
    if (sent === answered) asked = performance.now();
    stepwell.asked = sent += 1;
    stepwell.busy = true;
    send({number: sent, words: words(), changed});
    say("computing …", 300);
}

// `name` is the control that was changed: what does not go together with it is left out.
function onInput(event, name) {
    inputs.push([event?.timeStamp ?? performance.now(), sent + 1]);
    writeAddress();
    files();
    ask(name && prefixed(name));
}

// What the server made of the words: the values of all controls, and the words without those that were left out.
function resolve({number, place, words, values, kinds, problems}) {
    if (!values || number !== sent || place >= state.configurations.length) return;
    const before = JSON.stringify([state.values[place], state.kinds[place], state.configurations[place]]);
    state.values[place] = values;
    state.kinds[place] = kinds;
    const own = state.configurations[place];
    for (const name of Object.keys(own)) if (!(name in words) && !(name in problems) && own[name] !== "") delete own[name];
    if (JSON.stringify([values, kinds, own]) === before) return;
    writeAddress();
    files();
    if (place === state.picked) { show(); showProblems(problems); }
}

function receive(head) {
    if (head.failed) say(`This could not be computed: ${head.failed}`);
    if (head.place !== undefined) {
        resolve(head);
        if (JSON.stringify(problems[head.place]) !== JSON.stringify(head.problems)) {
            problems[head.place] = head.problems;
            if (head.place === state.picked) showProblems(head.problems);
            chips();
        }
        if (head.compiling) say("compiling a program for this shape, once …");
        progress(head.part !== undefined && performance.now() - asked > 500 ? head.part : undefined);
        if (head.view) {
            const view = head.view;
            // What comes first is the run alone; its table follows with the theory.
            if (head.part !== undefined) view.table ??= draw.views[head.place]?.table;
            if (view.time || head.part === undefined) draw.views[head.place] = view;
            at("figures").classList.toggle("stale", !view.time && settings.mode !== "stored");
            if (settings.mode === "stored") at("clock").hidden = !view.time;
            if (head.place === state.picked) introduce(view.kind);
            repaint(head.number);
        }
    }
    if (head.done !== undefined) {
        answered = Math.max(head.number, cancelled); // what waited when all was cancelled has no answer of its own
        stepwell.busy = answered < sent;
        progress(undefined);
        if (!head.failed) say(head.stopped ? "Stopped." : [draw.shown()?.message, draw.shown()?.remark].filter(Boolean).join(" "));
        shown(head.number);
    }
}

// Title and introduction are those of the figures that are shown.
function introduce(kind) {
    if (!kind || document.body.dataset.view === kind || settings.mode === "stored") return;
    document.body.dataset.view = kind;
    for (const one of document.querySelectorAll(".intro[data-view]")) one.hidden = one.dataset.view !== kind;
    for (const one of document.querySelectorAll("nav a")) {
        if (one.dataset.start === kind) one.setAttribute("aria-current", "page"); else one.removeAttribute("aria-current");
    }
    document.title = `${settings.presets[kind]?.title ?? "Your experiment"} · Stepwell`;
}

// Draw what is there. Bokeh paints with the next frame; the frame after it ends the wait of the inputs that are shown.
function repaint(number) {
    draw.drawViews();
    table();
    at("time").value = 1000 * draw.placeOf(state.time);
    shown(number);
}

function shown(number) {
    requestAnimationFrame(() => requestAnimationFrame(() => {
        const now = performance.now();
        while (inputs.length && inputs[0][1] <= number) {
            const [begun, own] = inputs.shift();
            stepwell.waits.push(now - begun);
            if (own === number) stepwell.latencies.push(now - begun);
        }
        stepwell.ready = true;
    }));
}

let saying = 0;
function say(text, later = 0) {
    clearTimeout(saying);
    const write = () => { if (at("status").textContent !== text) at("status").textContent = text; };
    if (later) saying = setTimeout(() => { if (sent > answered) write(); }, later);
    else write();
}

function progress(part) {
    at("progress").hidden = part === undefined;
    if (part === undefined) return;
    at("progress").querySelector("progress").value = part;
    at("progress").querySelector("span").textContent = `${Math.round(100 * part)} %`;
}

// --- configurations -------------------------------------------------------------------------------------------------

function chips() {
    const place = at("chips");
    if (!place) return;
    const button = (text, pressed, press) => {
        const made = element("button", {type: "button", "aria-pressed": pressed}, text);
        made.addEventListener("click", press);
        return made;
    };
    const focus = [...place.children].indexOf(document.activeElement);
    const made = state.configurations.map((_, number) => {
        const one = button(LETTERS[number], number === state.picked, () => pick(number));
        one.prepend(element("i", {style: `background: var(--c${number + 1})`}));
        const wrong = Object.keys(problems[number] ?? {}).length;
        one.setAttribute("aria-label", `Configuration ${LETTERS[number]}${wrong ? ", with errors" : ""}`);
        if (wrong) one.append(" !");
        return one;
    });
    if (state.configurations.length < 4) made.push(button("+ Compare", null, () => {
        for (const list of [state.configurations, state.values, state.kinds]) list.push({...list[state.picked]});
        pick(state.configurations.length - 1, true);
    }));
    if (state.configurations.length > 1) made.push(button(`Remove ${LETTERS[state.picked]}`, null, () => {
        for (const list of [state.configurations, state.values, state.kinds, draw.views, problems]) list.splice(state.picked, 1);
        pick(Math.max(state.picked - 1, 0), true);
    }));
    place.replaceChildren(...made);
    if (focus >= 0) made[Math.min(focus, made.length - 1)].focus();
}

function pick(number, ask = false) {
    state.picked = number;
    show();
    showProblems(problems[number] ?? {});
    chips();
    introduce(draw.shown()?.kind);
    repaint(0);
    if (ask) onInput(); else writeAddress();
}

// --- time -----------------------------------------------------------------------------------------------------------

const LASTS = 8000; // milliseconds that a run plays
let playing = null;

function setTime(place) {
    state.time = draw.moment(place);
    draw.drawTime();
}

function play(on) {
    at("play").textContent = on ? "Pause" : "Play";
    at("play").setAttribute("aria-pressed", String(on));
    cancelAnimationFrame(playing);
    if (!on) { playing = null; writeAddress(); return; }
    let place = draw.placeOf(state.time), last = null;
    if (place >= 1) place = 0;
    stepwell.frames.length = 0;
    const frame = now => {
        if (last !== null) place += (now - last) / LASTS;
        last = now;
        stepwell.frames.push(now);
        setTime(Math.min(place, 1));
        at("time").value = 1000 * Math.min(place, 1);
        if (place < 1) playing = requestAnimationFrame(frame); else play(false);
    };
    playing = requestAnimationFrame(frame);
}

function connectTime() {
    let due = false;
    at("time").addEventListener("input", () => {
        if (playing) play(false);
        if (due) return;
        due = true;
        requestAnimationFrame(now => { due = false; stepwell.frames.push(now); setTime(at("time").value / 1000); });
    });
    at("time").addEventListener("change", () => requestAnimationFrame(writeAddress));
    at("play").addEventListener("click", () => play(!playing));
    at("log-time").checked = state.log;
    at("log-time").addEventListener("change", () => { state.log = at("log-time").checked; writeAddress(); repaint(0); });
}

// --- table and files ------------------------------------------------------------------------------------------------

let tabled = null;
function table() {
    const view = draw.shown();
    if (!view || tabled === view.table) return;
    tabled = view.table;
    const made = view.table ?? {columns: [], rows: []};
    at("caption").textContent = view?.caption ?? "";
    const cell = (kind, value) => element(kind, {"data-value": typeof value === "number" ? value : null}, kind === "th" ? value : draw.number(value));
    const row = (kind, values) => element("tr", {}, ...values.map(value => cell(kind, value)));
    at("table").replaceChildren(row("th", made.columns), ...made.rows.map(values => row("td", values)));
    at("card-table").hidden = !made.rows.length && !view?.caption;
}

function files() {
    for (const link of document.querySelectorAll("#files a")) link.href = `download/${link.dataset.kind}?${query(words())}`;
}

function connectFiles() {
    if (!at("files")) return;
    const tell = text => { at("files-say").textContent = text; };
    at("files").addEventListener("click", async event => {
        const link = event.target.closest("a");
        if (!link) return;
        event.preventDefault();
        tell("preparing …");
        try {
            const got = await fetch(link.href);
            if (!got.ok) throw new Error(await got.text());
            const name = /filename="(.+?)"/.exec(got.headers.get("Content-Disposition"))[1];
            const address = URL.createObjectURL(await got.blob());
            Object.assign(document.createElement("a"), {href: address, download: name}).click();
            setTimeout(() => URL.revokeObjectURL(address), 60_000);
            tell(`${name} was saved with your downloads.`);
        } catch (error) { tell(error.message); }
    });
    at("link").addEventListener("click", async () => {
        writeAddress();
        tell(location.href); // what it stays at where the clipboard is refused, or asks first
        try { await navigator.clipboard.writeText(location.href); tell("The link is in the clipboard."); } catch {}
    });
    at("store").addEventListener("click", async () => {
        tell("storing …");
        const got = await fetch(`store?${query(words())}`, {method: "POST", headers: {"X-Stepwell-Token": settings.token}});
        tell(got.ok ? `In the store as ${(await got.json()).names.map(name => name.slice(0, 12)).join(", ")}; see Runs and figures.` : await got.text());
    });
}

// --- theme, connection, start ---------------------------------------------------------------------------------------

function connectTheme() {
    const button = at("theme");
    const name = () => { button.setAttribute("aria-pressed", String(document.documentElement.dataset.theme === "dark")); };
    button.addEventListener("click", () => {
        const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
        document.documentElement.dataset.theme = theme;
        try { localStorage.setItem("stepwell-theme", theme); } catch { /* it lasts as long as the page */ }
        name();
        draw.dress();
        repaint(0);
    });
    name();
}

// A server that has gone may come back: the state is in the address, so the page loads it again.
async function wait() {
    at("lost").hidden = false;
    for (;;) {
        await new Promise(done => setTimeout(done, 1000));
        try { if ((await fetch("alive", {cache: "no-store"})).ok) break; } catch { /* not yet */ }
    }
    location.reload();
}

async function start() {
    const given = readAddress();
    show();
    chips();
    files();
    connectControls(onInput);
    connectTime();
    connectFiles();
    while (!window.Bokeh?.documents.length) await new Promise(done => setTimeout(done, 10));
    draw.begin(window.Bokeh.documents[0]);
    draw.dress();
    connectTheme();
    send = await connect(receive, wait);
    at("cancel").addEventListener("click", () => {
        cancelled = sent;
        send({number: sent, words: {}, cancel: true});
    });
    let resized = 0;
    addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(() => { draw.resized(); repaint(0); }, 100); });
    if (settings.mode === "stored") beginStored((name, text) => {
        state.configurations[0][name] = text;
        show();
        onInput();
    });
    beginTour(given, {
        set(changes) { Object.assign(state.configurations[state.picked], changes); show(); onInput(null, Object.keys(changes)[0]); },
        time(place) { setTime(place); at("time").value = 1000 * place; writeAddress(); },
        one() { for (const list of [state.configurations, state.values, state.kinds, draw.views, problems]) list.length = 1; pick(0, true); },
    });
    ask();
}

start();
