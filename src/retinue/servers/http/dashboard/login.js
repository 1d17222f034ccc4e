// Signs in with the code in the fragment of a one-time link, or with a pasted token. After the code may stand a view of
// the dashboard, `CODE/runs/ID`, which is opened then.

const message = document.getElementById("said");
const form = document.getElementById("form");
const token = document.getElementById("token");

const [code, ...view] = location.hash.slice(1).split("/");
if (location.hash) history.replaceState(null, "", location.pathname); // keeps the code out of the history
if (code) {
  message.textContent = "Signing in…";
  signIn({ code });
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  signIn({ token: token.value.trim() });
});

async function signIn(proof) {
  try {
    const answer = await fetch("/api/v1/login", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(proof),
    });
    if (answer.ok) return location.replace(view.length ? `/#/${view.join("/")}` : "/");
    const { error } = await answer.json();
    showError(error.message);
  } catch {
    showError("The server cannot be reached. Is `retinue serve` still running?");
  }
}

function showError(sentence) {
  message.textContent = sentence;
  message.dataset.refused = "";
  token.value = "";
  token.focus();
}
