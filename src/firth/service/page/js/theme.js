// Sets the theme before anything is drawn, so that a dark page never flashes white.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const saved = () => {
    try {
      return localStorage.getItem("firth.theme") ?? "auto";
    } catch {
      return "auto";
    }
  };
  const apply = () => {
    const theme = saved();
    const isDark = theme === "dark" || (theme === "auto" && dark.matches);
    document.documentElement.dataset.theme = isDark ? "dark" : "light";
  };
  dark.addEventListener("change", apply);
  addEventListener("firth-theme", apply);
  apply();
})();
