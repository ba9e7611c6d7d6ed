# Sourced by the scripts that set something up. The caller has set `program`, its name, and `log`, a file.

# step TITLE COMMAND...: runs the command with its output in the log, and says that it is at work. Status: the command's, 124 where it
# was stopped because it took longer than BLINK_STEP_SECONDS (1,200).
step() {
  local title=$1 began=$SECONDS said=$SECONDS most=${BLINK_STEP_SECONDS:-1200} status=0 pid
  shift
  set -m # a process group of its own, so that whatever it starts can be stopped with it
  "$@" >>"$log" 2>&1 </dev/null &
  pid=$!
  set +m
  trap 'kill -- -$pid 2>/dev/null || true; exit 130' INT TERM
  while kill -0 "$pid" 2>/dev/null && ((SECONDS - began < most)); do
    if [ -t 2 ]; then
      printf '\r%s: %s (%d s) ' "$program" "$title" $((SECONDS - began)) >&2
    elif ((SECONDS - said >= 15)); then
      echo "$program: $title (still at it after $((SECONDS - began)) s)" >&2
      said=$SECONDS
    fi
    sleep 0.2
  done
  if kill -0 "$pid" 2>/dev/null; then
    status=124
    kill -- "-$pid" 2>/dev/null || true
    for _ in {1..50}; do
      sleep 0.1
      kill -0 "$pid" 2>/dev/null || break
    done
    kill -KILL -- "-$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  else
    wait "$pid" || status=$?
  fi
  trap - INT TERM
  [ ! -t 2 ] || printf '\r' >&2
  case $status in
  0) echo "$program: $title: done ($((SECONDS - began)) s)" >&2 ;;
  124) echo "$program: $title: stopped, as it took longer than $most s" >&2 ;;
  *) echo "$program: $title: failed with status $status" >&2 ;;
  esac
  return "$status"
}
