// The oracle's answers to everything but completions and chats: functions of the request. Pure.
// Each throws ApiError 400 for an invalid request.
#pragma once

#include <ctime>
#include <nlohmann/json_fwd.hpp>

#include "oracle/request.h"

namespace fo::oracle {

nlohmann::json format_models(const ModelInfo& model, std::time_t created);

/// In vLLM's format, of a prompt or of messages.
nlohmann::json tokenize(const nlohmann::json& body, const ModelInfo& model);
nlohmann::json detokenize(const nlohmann::json& body, const ModelInfo& model);

}  // namespace fo::oracle
