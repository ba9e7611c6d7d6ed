# Sourced by the scripts that fetch what is not Python's. The caller has set `program`, its name, and `cache`, its directory.
# Where something cannot be had the caller ends with status 77, which its tests report as skipped, and one line that says why.
log=$cache/setup.log
. "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

fail() {
  echo "$program: $2" >&2
  exit "$1"
}

# may_fetch TITLE: ends where that step is left to the set-up, as in tests (BLINK_NO_DOWNLOADS).
may_fetch() {
  [ -z "${BLINK_NO_DOWNLOADS:-}" ] || fail 77 "cannot run here: $1 is for the set-up to do"
}

# fetch TITLE COMMAND...: a step of the set-up, which tests leave to scripts/test-needs.
fetch() {
  may_fetch "$1"
  step "$@" || fail 77 "cannot run here: $1 failed, see $log"
}

apt() {
  env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=2 "$@"
}

# Takes the lock on the cache, until unlock_cache: two runs at once would set it up twice.
lock_cache() {
  mkdir -p "$cache"
  exec {cache_lock}>"$cache/lock"
  flock --timeout 600 "$cache_lock" || fail 125 "another set-up has held $cache/lock for 600 s"
}

# lock_for_packages: the same for a cache of Debian's packages.
lock_for_packages() {
  command -v apt-get >/dev/null || fail 77 "cannot run here: this needs Debian's packages, and there is no apt-get"
  lock_cache
}

unlock_cache() {
  exec {cache_lock}>&-
}

# install_packages PACKAGE...: Debian packages that this machine is to have.
install_packages() {
  local package missing=()
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "$(id -u)" = 0 ] || fail 77 "cannot run here: install ${missing[*]} (sudo apt-get install ${missing[*]})"
  fetch "fetching the lists of packages" apt update
  fetch "installing ${missing[*]}" apt install -y --no-install-recommends "${missing[@]}"
}

# unpack_foreign ARCHITECTURE DIRECTORY PACKAGE...: Debian packages of another architecture, unpacked, from package lists of their own:
# the machine's list of architectures stays as it is.
unpack_foreign() {
  local architecture=$1 place=$2 lists=$cache/apt-$1 package
  shift 2
  [ ! -e "$place" ] || return 0
  local foreign=(-o "Dir::State=$lists" -o "Dir::Cache=$lists" -o Dir::State::status=/dev/null
    -o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture" -o APT::Sandbox::User=)
  mkdir -p "$lists/lists/partial" "$lists/archives/partial"
  rm -rf "$cache/unpacked" && mkdir "$cache/unpacked"
  fetch "fetching the lists of $architecture packages" apt "${foreign[@]}" update
  cd "$cache/unpacked"
  fetch "fetching $* for $architecture" apt "${foreign[@]}" download "$@"
  cd "$OLDPWD"
  for package in "$cache"/unpacked/*.deb; do
    fetch "unpacking $(basename "$package")" dpkg -x "$package" "$cache/unpacked"
    rm "$package"
  done
  mv "$cache/unpacked" "$place"
}
