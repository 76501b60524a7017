#include "route/admin.h"

#include <array>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "loop/event.h"
#include "os/log.h"
#include "plan/degradation.h"
#include "route/settings.h"

namespace fo::route {

struct SettingsHold::State {
  explicit State(const boost::asio::any_io_executor& executor) : handed_over_event(executor) {}
  std::size_t holders = 0;
  bool is_handed_over = false;
  loop::Event handed_over_event;
};

class SettingsHold::Holder {
 public:
  explicit Holder(const SettingsHold& hold) : state_(hold.state_) { ++state_->holders; }
  ~Holder() { --state_->holders; }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  // Without a timeout: a router that has the sockets, and is slow, still takes over.
  boost::asio::awaitable<void> until_handed_over() {
    while (!state_->is_handed_over) co_await state_->handed_over_event.wait();
  }

 private:
  std::shared_ptr<State> state_;
};

SettingsHold::SettingsHold(const boost::asio::any_io_executor& executor)
    : state_(std::make_shared<State>(executor)) {}

bool SettingsHold::is_held() const { return state_->holders > 0 || state_->is_handed_over; }

void SettingsHold::hand_over() {
  state_->is_handed_over = true;
  state_->handed_over_event.notify();
}

namespace {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using boost::asio::awaitable;
using http::Reply;
using http::Request;
using http::Response;

constexpr char kSocketName[] = "route.sock";
// Interval in which a change that is not possible at present is tried again.
constexpr base::Duration kRepeatInterval = std::chrono::milliseconds(50);

using Act = std::function<awaitable<Response>(const Request&)>;

awaitable<void> run_action(const Request& request, Reply& reply, Act act) {
  Response response;
  try {
    response = co_await act(request);
  } catch (const Error& error) {
    const bool may_succeed_later =
        error.status() == ExitStatus::kUnavailable || error.status() == ExitStatus::kTryAgain;
    response = http::error_response(may_succeed_later ? 503 : 409, error.what());
  }
  reply.answer(std::move(response));
  co_return;
}

using ActAtOnce = std::function<Response(const Request&)>;

awaitable<Response> run_at_once(ActAtOnce act, const Request& request) { co_return act(request); }

// An action that needs no wait.
Act at_once(ActAtOnce act) {
  return [act = std::move(act)](const Request& request) { return run_at_once(act, request); };
}

awaitable<Response> run_unless_held(const SettingsHold& hold, Act act, const Request& request) {
  if (hold.is_held()) co_return http::error_response(503, "another router is taking over");
  co_return co_await act(request);
}

http::Page post_page(std::string path, Act act) {
  return {"POST", std::move(path), [act = std::move(act)](const Request& request, Reply& reply) {
            return run_action(request, reply, act);
          }};
}

// A page that changes settings.
http::Page change_page(std::string path, const SettingsHold& hold, Act act) {
  return post_page(std::move(path), [&hold, act = std::move(act)](const Request& request) {
    return run_unless_held(hold, act, request);
  });
}

awaitable<void> show_settings(const AdminActions& actions, const SettingsHold& hold,
                              const Request& request, Reply& reply) {
  if (request.parameter("hold") != "1") {
    reply.answer({200, "application/json", actions.settings(), {}});
    co_return;
  }
  SettingsHold::Holder holder(hold);
  const std::string line = actions.settings() + "\n";
  reply.cancel_when_client_goes();
  co_await reply.begin(200, "application/json");
  co_await reply.write(line);
  co_await holder.until_handed_over();
}

Response done() { return {200, "application/json", "{}", {}}; }

Response found(bool is_found, std::string_view object) {
  return is_found ? done() : http::error_response(404, object);
}

std::string text_of(const Request& request, std::string_view name) {
  return std::string(request.parameter(name).value_or(""));
}

awaitable<Response> set_weight(const AdminActions& actions, const Request& request) {
  const std::string text = text_of(request, "weight");
  char* end = nullptr;
  const double weight = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(weight >= 0 && weight <= kMaxWeight)) {
    co_return http::error_response(400, "weight " + base::quoted(text) + ": expected 0 to 1000000");
  }
  const std::string model = text_of(request, "model");
  const bool is_there = co_await actions.weight(model, text_of(request, "card"), weight);
  co_return found(is_there, "set of model " + base::quoted(model) + ": unknown");
}

Response set_level(const AdminActions& actions, const Request& request) {
  const std::string text = text_of(request, "level");
  if (text == "auto") {
    actions.level(std::nullopt);
    return done();
  }
  const std::optional<std::uint64_t> level = base::parse_uint(text);
  if (!level || *level >= plan::kDegradationLevels.size()) {
    return http::error_response(400, "level " + base::quoted(text) + ": expected auto or 0 to 4");
  }
  actions.level(*level);
  return done();
}

}  // namespace

std::vector<http::Page> admin_pages(AdminActions given, const SettingsHold& hold) {
  const auto actions = std::make_shared<const AdminActions>(std::move(given));
  const auto json = [](std::string body) {
    return Response{200, "application/json", std::move(body), {}};
  };
  const auto drain = [actions](bool is_drained) {
    return at_once([actions, is_drained](const Request& request) {
      const std::string id = text_of(request, "id");
      return found(actions->drain(id, is_drained), "worker " + base::quoted(id) + ": unknown");
    });
  };
  return {
      http::get_page("/state", [actions, json] { return json(actions->state()); }),
      http::get_page("/requests", [actions, json] { return json(actions->requests()); }),
      {"GET", "/settings",
       [actions, &hold](const Request& request, Reply& reply) {
         return show_settings(*actions, hold, request, reply);
       }},
      change_page("/drain", hold, drain(true)),
      change_page("/undrain", hold, drain(false)),
      change_page("/weight", hold,
                  [actions](const Request& request) { return set_weight(*actions, request); }),
      change_page("/level", hold, at_once([actions](const Request& request) {
                    return set_level(*actions, request);
                  })),
      post_page("/kill", at_once([actions](const Request& request) {
                  const std::string id = text_of(request, "id");
                  return found(actions->kill(id), "request " + base::quoted(id) + ": unknown");
                })),
      change_page("/reload", hold, at_once([actions](const Request&) {
                    actions->reload();
                    return done();
                  })),
  };
}

std::string default_admin_path() { return fleet::default_admin_path(kSocketName); }

AdminAnswer send_to_router(const std::string& socket_path, std::string_view method,
                           const std::string& target, base::Duration timeout) {
  const Deadline deadline = Deadline::after(timeout);
  std::optional<Error> refusal;
  for (;;) {
    try {
      return fleet::send_admin_request("the router", socket_path, method, target,
                                       deadline.remaining().value_or(timeout));
    } catch (const Error& error) {
      if (error.status() != ExitStatus::kTryAgain) throw;
      if (deadline.expired()) throw Error(refusal.value_or(error));
      if (!refusal) os::log(os::LogLevel::kInfo, "{}; trying again", error.what());
      refusal = error;
    }
    std::this_thread::sleep_for(kRepeatInterval);
  }
}

awaitable<HeldSettings> hold_settings(std::string socket_path, Deadline deadline) {
  const std::string what = "control the router at " + base::quoted(socket_path);
  http::Origin origin;
  origin.socket_path = std::move(socket_path);
  HeldSettings held;
  held.connection = co_await http::Connection::open(std::move(origin), deadline, what);
  http::RequestHead request;
  request.target = "/settings?hold=1";
  co_await held.connection->send(std::move(request), {}, deadline);
  const http::ResponseHead head = co_await held.connection->read_head(deadline);
  if (head.status != 200) {
    throw Error(ExitStatus::kProtocol, what + ": status " + std::to_string(head.status));
  }
  std::array<char, 4096> space;
  while (!held.text.ends_with('\n')) {
    const std::size_t count = co_await held.connection->read_some(space, deadline);
    // A router that does not know `hold` ends its answer here.
    if (count == 0) break;
    held.text.append(space.data(), count);
    if (held.text.size() > kMaxSettingsBytes) {
      throw Error(ExitStatus::kProtocol, what + ": the settings are too long");
    }
  }
  co_return held;
}

}  // namespace fo::route
