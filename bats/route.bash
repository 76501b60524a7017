# shellcheck shell=bash disable=SC2034,SC2154  # variables of the tests and of test_helper
# Workers of fo-oracle, and a router before them.

# setup_route: the settings of each test.
setup_route() {
  fo_setup
  unset FO_REGISTRY FO_STATE_REGISTRY
  # The folder of the admin socket must be the router's own.
  export FO_ROUTE_ADMIN=$T/route/route.sock FO_ROUTE_LAME_DUCK=0s
}

# start_oracle NAME [OPTION]...: starts a worker; its pid is in ORACLE, its URL in WORKER.
start_oracle() {
  local name=$1
  shift
  start_bg "$name" fo-oracle --port 0 "$@"
  ORACLE=$BG_PID
  wait_for "[ -s $T/$name.out ]"
  WORKER=http://$(sed 's/^ready //' "$T/$name.out")
}

# start_router [OPTION]...: starts a router; its pid is in ROUTER, its URL in URL.
start_router() {
  start_bg router fo-route serve --listen 127.0.0.1:0 --ready-fd 9 "$@" 9>"$T/ready"
  ROUTER=$BG_PID
  wait_for "[ -s $T/ready ] || ! kill -0 $ROUTER"
  URL=http://$(cat "$T/ready")
}

ctl() { timeout 30 fo-route ctl "$@" 3>&-; }

# state FILTER: prints a part of the state.
state() { ctl state --json | jq -rc "$1"; }
await_healthy() { wait_for "[ \"\$(state .healthy)\" = $1 ]"; }
