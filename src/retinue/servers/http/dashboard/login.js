// Signs in: by the code in the fragment of a one-time link, or by a token that is pasted.

const said = document.getElementById("said");
const form = document.getElementById("form");
const token = document.getElementById("token");

const code = location.hash.slice(1);
if (location.hash) history.replaceState(null, "", location.pathname); // a code is not left in the history
if (code) {
  said.textContent = "Signing in…";
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
    if (answer.ok) return location.replace("/");
    const { error } = await answer.json();
    refuse(error.message);
  } catch {
    refuse("The server cannot be reached. Is `retinue serve` still running?");
  }
}

function refuse(sentence) {
  said.textContent = sentence;
  said.dataset.refused = "";
  token.value = "";
  token.focus();
}
