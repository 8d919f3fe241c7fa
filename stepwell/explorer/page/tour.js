// Six steps through what is to be seen: each says something, sets the time or a control, and points at a figure.
import * as draw from "./draw.js";
import {at, query, settings} from "./state.js";

const drop = number => draw.shown()?.drop_times?.[number] ?? draw.now();

const STEPS = [
    {mode: "linear", title: "Wait", card: "loss", when: () => 0.45 * drop(0),
        text: "The weights start small, so the gradient is small too, and nothing seems to happen: the loss stays near its first level. It waits the longer the smaller the initialization is; try its scale."},
    {mode: "linear", title: "Drop", card: "values", when: () => drop(0),
        text: "Then one head wins the race and grows within a short time, and the loss falls. Dashed curves are a scalar equation for that head alone, and the dashed line is the time that theory predicted for the drop."},
    {mode: "linear", title: "Plateau", card: "loss", when: () => (drop(0) + drop(1)) / 2,
        text: "Training now sits near a saddle: the first eigenvector is learned, the others are not. Each dotted level is the loss of a model that has learned so many of them."},
    {mode: "linear", title: "The next component", card: "keys", when: () => drop(1),
        text: "Another head takes the eigenvector with the next largest eigenvalue. In the eigenbasis a key or query that has learned a component is one colored square; watch them appear one after another."},
    {mode: "linear", title: "Rank", card: "map", set: {"model.rank": "2"}, when: () => null,
        text: "With rank R a head can learn R components, one after the other. Here R is 2, so that half as many heads do the work; the effective map approaches its target, on the diagonal, as before."},
    {mode: "softmax", title: "Softmax", card: "allocation", when: () => null,
        text: "Softmax heads on several regressions compete as well: each task is taken by the head that was first, and the allocation shows who serves whom at every moment."},
];

export function beginTour(words, page) {
    const guide = at("guide");
    if (!at("tour")) return;
    let step = -1;
    const point = card => {
        for (const one of document.querySelectorAll(".pointed")) one.classList.remove("pointed");
        if (card) at(`card-${card}`).classList.add("pointed");
    };
    const ready = async () => {
        while (!window.stepwell.ready || window.stepwell.busy) await new Promise(done => setTimeout(done, 50));
    };
    const go = async number => {
        const one = STEPS[number];
        if (one && one.mode !== document.body.dataset.view) {
            location.search = `?${query({...settings.presets[one.mode].words, tour: number + 1})}`;
            return;
        }
        const before = step;
        step = number;
        guide.hidden = !one;
        point(one?.card);
        if (!one) { at("tour").focus(); return; }
        at("guide-step").textContent = `Step ${number + 1} of ${STEPS.length}`;
        at("guide-title").textContent = one.title;
        at("guide-text").textContent = one.text;
        at("guide-back").disabled = number === 0;
        at("guide-next").textContent = number + 1 < STEPS.length ? "Next" : "Done";
        if (before < 0) page.one();
        if (one.set) page.set(one.set);
        else if (STEPS[before]?.set) page.set(Object.fromEntries(Object.keys(STEPS[before].set).map(name => [name, "1"])));
        await ready();
        const when = one.when();
        page.time(when === null ? 1 : draw.placeOf(when));
        at(`card-${one.card}`).scrollIntoView({block: "nearest"});
    };
    at("tour").addEventListener("click", () => go(0));
    at("guide-back").addEventListener("click", () => go(step - 1));
    at("guide-next").addEventListener("click", () => go(step + 1 < STEPS.length ? step + 1 : -1));
    at("guide-end").addEventListener("click", () => go(-1));
    const asked = Number(words.tour);
    if (asked >= 1 && asked <= STEPS.length) go(asked - 1);
}
