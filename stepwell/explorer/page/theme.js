// Light or dark, before anything is painted: as the reader chose, or as the system has it.
(() => {
    let chosen = null;
    try { chosen = localStorage.getItem("stepwell-theme"); } catch { /* no storage: the system decides */ }
    const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
