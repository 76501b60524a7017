// The oracle's answers to everything but completions and chats: functions of the request. Pure.
// Each throws ApiError 400 for an invalid request.
#pragma once

#include <ctime>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "oracle/request.h"

namespace fo::oracle {

nlohmann::json format_models(const ModelInfo& model, std::time_t created);

/// Returns the tokens of a prompt or of messages, in vLLM's format.
nlohmann::json tokenize(const nlohmann::json& body, const ModelInfo& model);
nlohmann::json detokenize(const nlohmann::json& body, const ModelInfo& model);

/// Vectors of 16 numbers, as a list or in base64.
nlohmann::json embed(const nlohmann::json& body, const ModelInfo& model);
/// Documents in the order of their scores, which are hashes of the query and the document.
nlohmann::json rerank(const nlohmann::json& body, const ModelInfo& model);
nlohmann::json score(const nlohmann::json& body, const ModelInfo& model);

/// OpenAI's responses and Anthropic's messages: the answer as one object. The text is that of a
/// chat with the same messages.
nlohmann::json respond(const nlohmann::json& body, const ModelInfo& model, const std::string& id);
nlohmann::json converse(const nlohmann::json& body, const ModelInfo& model, const std::string& id);
/// The events of the same answers in a stream.
std::string respond_events(const nlohmann::json& response);
std::string converse_events(const nlohmann::json& message);

}  // namespace fo::oracle
