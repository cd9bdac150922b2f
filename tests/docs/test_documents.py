"""The documents say what the program does, all of it and nothing else; the examples work."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runguard import config, configfile, exits, options
from runguard.backends import lockdir, mariadburl, postgres
from runguard.cli import commands

ROOT = Path(__file__).resolve().parents[2]
PAGE_1, PAGE_5, PAGE_7 = (ROOT / "man" / name for name in ("runguard.1", "runguard.toml.5", "runguard.7"))
PAGES = (PAGE_1, PAGE_5, PAGE_7)
README = ROOT / "README.md"
CRON = ROOT / "examples" / "cron.d" / "runguard-example"
UNITS = sorted((ROOT / "examples" / "systemd").iterdir())
PHP = ROOT / "examples" / "php" / "shared_lock.php"

RUNGUARD = (sys.executable, "-m", "runguard")
INSTALLED = "/usr/local/bin/runguard"
SECONDS = 30

MACRO = re.compile(r"[A-Z][a-z]")
EXPORTED = re.compile(r"^(RUNGUARD_[A-Z_]+)=", re.MULTILINE)


def arguments_of(macro: str, page: Path) -> list[str]:
    """Return the words that follow a macro on the request lines of a manual page, up to the next macro."""
    found = []
    for line in page.read_text().splitlines():
        if not line.startswith("."):
            continue
        try:
            words = shlex.split(line[1:].replace("\\&", ""))
        except ValueError:
            words = line[1:].split()
        taking = False
        for word in words:
            if MACRO.fullmatch(word):
                taking = word == macro
            elif word in {"|", ",", ".", ";", ":", "(", ")"}:
                # `.Fl h | -help` and `.Ev A , B`: the macro goes on behind a delimiter.
                continue
            elif taking:
                found.append(word)
    return found


def flags_in(page: Path) -> set[str]:
    """Return the options that a page marks up, with their hyphens; the bare `--` is none."""
    return {f"-{word}" for word in arguments_of("Fl", page)} - {"--"}


def every_flag() -> set[str]:
    """Return all options that some command of the program takes."""
    top = commands.make_context("runguard", [], resilient_parsing=True)
    below = [
        command.make_context(name, [], parent=top, resilient_parsing=True)
        for name, command in commands.commands.items()
    ]
    parameters = [parameter for context in (top, *below) for parameter in context.command.get_params(context)]
    return {flag for parameter in parameters for flag in parameter.opts if flag.startswith("-")}


def section(page: Path, title: str) -> str:
    """Return the source of one `.Sh` section."""
    return page.read_text().partition(f".Sh {title}\n")[2].partition("\n.Sh ")[0]


def codes_in(text: str) -> set[str]:
    """Return the codes of a list heading: numbers, a range as `0-255`, and `128+N`."""
    text = re.sub(r"(\d+) to (\d+)", r"\1-\2", text)
    return set(re.findall(r"128\+N|\d+-\d+|\d+", text))


def codes_of_page() -> set[str]:
    items = re.findall(r"^\.It (.*)$", section(PAGE_1, "EXIT STATUS"), re.MULTILINE)
    return set().union(*map(codes_in, items))


def tool(name: str) -> str:
    """Return the path of a program; without it skip by hand, fail in CI."""
    path = shutil.which(name)
    if path is None:
        missing = f"{name} is not installed, nothing of this claim was tested"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return path


def clean_environment(lock_directory: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RUNGUARD_")}
    return kept | {
        "RUNGUARD_LOCK_DIR": str(lock_directory),
        "HOME": str(lock_directory.parent),
        "PYTHONPATH": str(ROOT),
    }


def run(*words: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False
    )


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return clean_environment(tmp_path / "locks")


def test_options_of_run_stand_in_the_manual() -> None:
    """Every option of `run` stands in runguard(1) as the heading of an item, long name and letter."""
    for option in options.RUN:
        names = f".It Fl {option.short} , Fl -{option.name}" if option.short else f".It Fl -{option.name}"
        heading = f"{names} Ar {option.metavar}" if option.metavar else names
        assert heading in PAGE_1.read_text().splitlines(), option.name


def test_manual_names_all_options_and_no_others() -> None:
    """Every option of every command stands in runguard(1), and no option that does not exist."""
    assert flags_in(PAGE_1) == every_flag()


@pytest.mark.parametrize("page", [PAGE_5, PAGE_7], ids=lambda page: page.name)
def test_other_pages_name_no_unknown_option(page: Path) -> None:
    """No page names an option that does not exist."""
    assert flags_in(page) <= every_flag()


def test_commands_and_choices_stand_in_the_manual() -> None:
    """Every command and every word that an option allows is marked up in runguard(1), and nothing else is."""
    choices = {word for option in options.RUN for word in getattr(option.kind, "words", ())}
    fixed = {"forever", "stderr", "syslog"}
    assert set(arguments_of("Cm", PAGE_1)) == set(commands.commands) | choices | fixed


def test_defaults_stand_in_the_manual() -> None:
    """The built-in defaults that are no empty value stand under their option in runguard(1) and runguard.toml(5)."""
    for option in options.RUN:
        if not option.default:
            continue
        for page, heading in ((PAGE_1, rf"^\.It Fl .*-{option.name}\b"), (PAGE_5, rf"^\.It Ic {option.name}\b")):
            below = re.split(heading, page.read_text(), flags=re.MULTILINE)[1]
            item = re.split(r"^\.It (?:Fl|Ic)", below, flags=re.MULTILINE)[0]
            assert re.search(rf"(?<!\w){re.escape(str(option.default))}(?!\w)", item), (page.name, option.name)


def test_environment_variables_stand_in_the_manual() -> None:
    """Every variable of runguard or of MariaDB that the sources name stands in runguard(1), and no other."""
    sources = "\n".join(path.read_text() for path in (ROOT / "runguard").rglob("*.py"))
    named = set(re.findall(r"\"((?:RUNGUARD|MYSQL)_[A-Z_]*[A-Z])\"", sources))
    named |= {option.variable for option in options.RUN if option.variable}
    documented = {name for name in arguments_of("Ev", PAGE_1) if name.startswith(("RUNGUARD_", "MYSQL_"))}
    assert lockdir.VARIABLE in named
    assert documented == named


def test_exported_variables_stand_in_the_manual(environment: dict[str, str]) -> None:
    """What the command finds set is what runguard(1) lists as set, and the reserved names are taken away."""
    reserved = {"RUNGUARD_SLOT": "1", "RUNGUARD_TOKEN": "1"}
    ended = run(*RUNGUARD, "run", "shop.refresh", "--", "env", environment=environment | reserved)
    listed = section(PAGE_1, "ENVIRONMENT").partition(".Ss Set for the command")[2]
    exported = set(EXPORTED.findall(ended.stdout)) - {"RUNGUARD_LOCK_DIR"}
    assert exported == set(re.findall(r"^\.It Ev (RUNGUARD_\w+)$", listed, re.MULTILINE))


@pytest.mark.parametrize("page", [PAGE_5, PAGE_7, README], ids=lambda page: page.name)
def test_no_document_names_an_unknown_variable(page: Path) -> None:
    """No document names a variable of runguard that runguard(1) does not explain."""
    named = set(re.findall(r"\bRUNGUARD_[A-Z_]*[A-Z]\b", page.read_text()))
    assert named <= set(arguments_of("Ev", PAGE_1))


def test_configuration_keys_stand_in_the_manual() -> None:
    """Every key and table of a configuration file heads an item in runguard.toml(5), and nothing else does."""
    headed = re.findall(r"^\.It Ic (\S+)", PAGE_5.read_text(), re.MULTILINE)
    tables = {"[defaults]", "[job.NAME]", "[backend.NAME]"}
    keys = {option.name for option in options.RUN if option.in_config} | set(configfile.BACKEND_KEYS)
    assert {table.strip("[]").partition(".")[0] for table in tables} == set(configfile.TABLES)
    assert sorted(headed) == sorted(tables | keys)


def test_configuration_example_is_accepted(tmp_path: Path) -> None:
    """The example of runguard.toml(5) is a file that runguard reads without complaint."""
    example = section(PAGE_5, "EXAMPLES").partition(".Bd -literal -offset indent\n")[2].partition(".Ed")[0]
    path = tmp_path / "runguard.toml"
    path.write_text(example)
    path.chmod(0o600)
    _, document = configfile.load(str(path))
    assert set(document["backend"]) == {"ops", "shop"}


def test_configuration_paths_stand_in_the_manual() -> None:
    """The two files that are read stand in both pages that speak of them."""
    for page in (PAGE_1, PAGE_5):
        assert {config.SYSTEM_FILE, f"~/{config.USER_FILE}"} <= set(arguments_of("Pa", page)), page.name


def test_exit_codes_stand_in_the_manual() -> None:
    """Every exit code of the program stands in runguard(1)."""
    numbers = {str(value) for name, value in vars(exits).items() if name.isupper()}
    text = section(PAGE_1, "EXIT STATUS")
    assert numbers - codes_in(text) == {str(exits.SIGNAL_BASE)}
    assert "128+N" in codes_in(text)


def test_exit_codes_of_readme_agree() -> None:
    """The table of exit codes in the README has the codes of runguard(1), no more and no fewer."""
    table = README.read_text().partition("## Exit codes")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)
    assert set().union(*map(codes_in, cells)) == codes_of_page()


def test_readme_names_no_unknown_option() -> None:
    """No long option in the README is unknown to runguard."""
    prose = re.sub(r"pip install \S+ \.", "", README.read_text())
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", prose)) <= every_flag()


def test_readme_names_the_right_distribution() -> None:
    """Nobody is told to install the distribution `runguard`, which belongs to somebody else."""
    wrong = re.compile(r"(?:pip|pipx|uv)\s+(?:tool\s+)?install\s+(?:-\S+\s+)*['\"]?runguard(?!-cli)\b")
    for document in (README, *PAGES, ROOT / "CHANGELOG.md"):
        assert not wrong.search(document.read_text()), document.name


def test_options_of_database_urls_stand_in_the_manual() -> None:
    """Every option of a MariaDB URL stands in runguard(7)."""
    listed = section(PAGE_7, "MARIADB").partition(".It options of the URL\n")[2].partition(".El")[0]
    words = set(re.findall(r"[a-z_]+", listed.replace(".Pq seconds", "")))
    assert words == set(mariadburl.URL_OPTIONS)


def test_golden_keys_of_the_manual_are_right() -> None:
    """The advisory keys printed in runguard(7) are those that runguard derives."""
    pairs = re.findall(r"^\.It (\S+) Ta (-?\d{10,})$", section(PAGE_7, "IDENTITY"), re.MULTILINE)
    assert len(pairs) == 4
    assert all(postgres.derived_key(name) == int(key) for name, key in pairs)


def test_key_output_of_the_readme_is_right(environment: dict[str, str]) -> None:
    """What the README shows of `runguard key` is what it prints, but for the directory and the user."""
    shown = README.read_text().partition("$ runguard key shop.refresh\n")[2].partition("\n\nThe other way")[0]
    printed = run(*RUNGUARD, "key", "shop.refresh", environment=environment).stdout
    printed = printed.replace(environment["RUNGUARD_LOCK_DIR"], lockdir.OF_ROOT)
    printed = re.sub(r"this host, user \S+", "this host, user root", printed)
    assert [line.strip() for line in shown.splitlines()] == printed.splitlines()


def test_survival_table_has_every_event() -> None:
    """The table of runguard(7) has a row for each event and a cell for each backend."""
    table = PAGE_7.read_text().partition(".Ss What survives what\n")[2].partition(".El")[0]
    rows = [line.removeprefix(".It ").split(" Ta ") for line in table.splitlines() if line.startswith(".It ")]
    assert rows[0] == ["Sy event", "Sy file", "Sy mariadb", "Sy postgresql"]
    assert len(rows) == 14
    assert all(len(row) == 4 for row in rows)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_manual_pages_are_clean(page: Path) -> None:
    """A page gives mandoc nothing to say, not even about its style."""
    ended = run(tool("mandoc"), "-T", "lint", "-W", "style", str(page), environment=dict(os.environ))
    assert (ended.stdout, ended.stderr) == ("", "")


@pytest.mark.parametrize("page", [*PAGES, README], ids=lambda page: page.name)
def test_one_sentence_per_line(page: Path) -> None:
    """A new sentence starts on a new line."""
    text = re.sub(r"^\.Bd -literal.*?^\.Ed$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    prose = [line for line in text.splitlines() if not line.startswith((".", "    ", "|", "- "))]
    assert [line for line in prose if re.search(r"[a-z)][.?!] [A-Z]", line)] == []


def cron_lines() -> list[list[str]]:
    """Return the seven fields of each job of the cron example."""
    lines = [line for line in CRON.read_text().splitlines() if line and not line.startswith("#")]
    return [line.split(None, 6) for line in lines if not re.match(r"[A-Z]+=", line)]


def test_cron_example_has_seven_fields() -> None:
    """Each job of the cron.d file has five times, a user, a command by its absolute path, and no bare percent sign."""
    assert "." not in CRON.name
    assert len(cron_lines()) > 1
    for fields in cron_lines():
        assert len(fields) == 7
        assert all(re.fullmatch(r"[\d*/,-]+", field) for field in fields[:5])
        assert re.fullmatch(r"[a-z-]+", fields[5])
        assert fields[6].startswith(f"{INSTALLED} run ")
        assert not re.search(r"(?<!\\)%", fields[6])


@pytest.mark.parametrize("number", range(len(cron_lines())))
def test_cron_example_runs(number: int, tmp_path: Path, environment: dict[str, str]) -> None:
    """Each job of the cron.d file, with its command replaced by `echo`, runs as cron would start it."""
    (tmp_path / "shared").mkdir(mode=0o700)
    settings = tmp_path / "runguard.toml"
    settings.write_text(f'[backend.ops]\nurl = "file:{tmp_path}/shared"\n')
    settings.chmod(0o600)
    line = cron_lines()[number][6].replace("\\%", "%")
    line = line.replace(INSTALLED, shlex.join(RUNGUARD)).replace(" -- ", " -- echo ")
    line = line.replace("syslog", f"{tmp_path}/log")
    ended = run("/bin/sh", "-c", line, environment=environment | {"RUNGUARD_CONFIG": str(settings)})
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("/")


def test_systemd_example_is_verified(tmp_path: Path) -> None:
    """The unit files give systemd nothing to say, on any stream."""
    verify = tool("systemd-analyze")
    copies = [tmp_path / unit.name for unit in UNITS]
    for unit, copy in zip(UNITS, copies, strict=True):
        copy.write_text(unit.read_text().replace(INSTALLED, sys.executable))
    assert {copy.suffix for copy in copies} == {".service", ".timer"}
    ended = run(verify, "verify", "--man=no", *map(str, copies), environment=dict(os.environ))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_systemd_example_says_what_matters() -> None:
    """The service treats a conflict as success, signals runguard alone, and keeps the lock directory of others."""
    (service,) = [unit.read_text() for unit in UNITS if unit.suffix == ".service"]
    for line in ("SuccessExitStatus=75", "KillMode=mixed", "RuntimeDirectoryPreserve=yes"):
        assert line in service.splitlines()


def test_php_example_is_valid() -> None:
    """PHP finds no fault with the script."""
    ended = run(tool("php"), "-l", str(PHP), environment=dict(os.environ))
    assert (ended.returncode, ended.stderr) == (0, "")


def lock_path(environment: dict[str, str]) -> str:
    """Return the path that an operator would copy from `runguard key`; the lock directory is made by a first run."""
    assert run(*RUNGUARD, "run", "shop.import", "--", "true", environment=environment).returncode == 0
    printed = run(*RUNGUARD, "key", "-b", "file:", "shop.import", environment=environment).stdout
    return printed.splitlines()[0].removeprefix("file: ")


def holding(*words: str, environment: dict[str, str]) -> "subprocess.Popen[str]":
    """Start a program that has the lock once it has written a line, and gives it back at the end of its input."""
    process = subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "working\n"
    return process


def test_php_example_excludes_runguard(environment: dict[str, str]) -> None:
    """While the PHP script works runguard is skipped; when it has ended runguard runs."""
    php, path = tool("php"), lock_path(environment)
    with holding(php, str(PHP), "file", path, environment=environment) as script:
        busy = run(*RUNGUARD, "run", "shop.import", "--", "echo", "ran", environment=environment)
        script.communicate("one\ntwo\n", timeout=SECONDS)
    free = run(*RUNGUARD, "run", "shop.import", "--", "echo", "ran", environment=environment)
    assert (busy.returncode, busy.stdout) == (exits.CONFLICT, "")
    assert script.returncode == 0
    assert (free.returncode, free.stdout) == (0, "ran\n")


def test_php_example_is_excluded_by_runguard(environment: dict[str, str]) -> None:
    """While a command of runguard runs the PHP script ends with 75; when it has ended the script works."""
    php, path = tool("php"), lock_path(environment)
    command = ("sh", "-c", "echo working; cat >/dev/null")
    with holding(*RUNGUARD, "run", "shop.import", "--", *command, environment=environment) as holder:
        busy = run(php, str(PHP), "file", path, environment=environment)
        holder.communicate("", timeout=SECONDS)
    free = run(php, str(PHP), "file", path, environment=environment)
    assert (busy.returncode, busy.stdout) == (exits.CONFLICT, "")
    assert holder.returncode == 0
    assert (free.returncode, free.stdout) == (0, "working\nimported 0 orders\n")


def test_php_example_excludes_itself(environment: dict[str, str]) -> None:
    """While the PHP script works a second one ends with 75."""
    php, path = tool("php"), lock_path(environment)
    with holding(php, str(PHP), "file", path, environment=environment) as script:
        busy = run(php, str(PHP), "file", path, environment=environment)
        script.communicate("", timeout=SECONDS)
    assert (busy.returncode, busy.stdout) == (exits.CONFLICT, "")
    assert script.returncode == 0
