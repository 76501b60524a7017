#include "route/admin.h"

#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "plan/degradation.h"
#include "route/settings.h"

namespace fo::route {
namespace {

using base::Error;
using base::ExitStatus;
using boost::asio::awaitable;
using http::Reply;
using http::Request;
using http::Response;

constexpr char kSocketName[] = "route.sock";

// The answer to an action: `is_found` is false if its object does not exist.
using Act = std::function<Response(const Request&)>;

awaitable<void> run_action(const Request& request, Reply& reply, Act act) {
  Response response;
  try {
    response = act(request);
  } catch (const Error& error) {
    response = http::error_response(409, error.what());
  }
  reply.answer(std::move(response));
  co_return;
}

http::Page post_page(std::string path, Act act) {
  return {"POST", std::move(path), [act = std::move(act)](const Request& request, Reply& reply) {
            return run_action(request, reply, act);
          }};
}

Response done() { return {200, "application/json", "{}", {}}; }

Response found(bool is_found, std::string_view object) {
  return is_found ? done() : http::error_response(404, object);
}

std::string text_of(const Request& request, std::string_view name) {
  return std::string(request.parameter(name).value_or(""));
}

Response set_weight(const AdminActions& actions, const Request& request) {
  const std::string text = text_of(request, "weight");
  char* end = nullptr;
  const double weight = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(weight >= 0 && weight <= kMaxWeight)) {
    return http::error_response(400, "weight " + base::quoted(text) + ": expected 0 to 1000000");
  }
  const std::string model = text_of(request, "model");
  return found(actions.weight(model, text_of(request, "card"), weight),
               "set of model " + base::quoted(model) + ": not there");
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

std::vector<http::Page> admin_pages(AdminActions given) {
  const auto actions = std::make_shared<const AdminActions>(std::move(given));
  const auto json = [](std::string body) {
    return Response{200, "application/json", std::move(body), {}};
  };
  const auto drain = [actions](bool is_drained) {
    return [actions, is_drained](const Request& request) {
      const std::string id = text_of(request, "id");
      return found(actions->drain(id, is_drained), "worker " + base::quoted(id) + ": unknown");
    };
  };
  return {
      http::get_page("/state", [actions, json] { return json(actions->state()); }),
      http::get_page("/requests", [actions, json] { return json(actions->requests()); }),
      http::get_page("/settings", [actions, json] { return json(actions->settings()); }),
      post_page("/drain", drain(true)),
      post_page("/undrain", drain(false)),
      post_page("/weight",
                [actions](const Request& request) { return set_weight(*actions, request); }),
      post_page("/level",
                [actions](const Request& request) { return set_level(*actions, request); }),
      post_page("/kill",
                [actions](const Request& request) {
                  const std::string id = text_of(request, "id");
                  return found(actions->kill(id), "request " + base::quoted(id) + ": unknown");
                }),
      post_page("/reload",
                [actions](const Request&) {
                  actions->reload();
                  return done();
                }),
  };
}

std::string default_admin_path() { return fleet::default_admin_path(kSocketName); }

AdminAnswer ask_router(const std::string& socket_path, std::string_view method,
                       const std::string& target, base::Duration timeout) {
  return fleet::ask_admin("the router", socket_path, method, target, timeout);
}

}  // namespace fo::route
