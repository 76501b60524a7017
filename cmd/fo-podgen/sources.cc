#include "sources.h"

#include "os/file/input.h"
#include "pod/krm_function.h"

namespace fo::fo_podgen {

Source read_source(const std::string& file) {
  constexpr yaml::ReadLimits kLimits;
  Source source;
  source.name = os::input_name(file);
  source.text = os::read_input(file, kLimits.bytes);
  source.documents = yaml::read_yaml(source.text, source.name, kLimits);
  return source;
}

bool is_function_input(const Source& source) {
  return source.documents.size() == 1 && pod::is_resource_list(source.documents[0].root);
}

std::vector<Source> read_sources(const std::vector<std::string>& files) {
  os::check_inputs(files);
  std::vector<Source> sources;
  for (const std::string& file : files) sources.push_back(read_source(file));
  return sources;
}

std::shared_ptr<const pod::InputObjects> objects_of(const std::vector<Source>& sources) {
  auto objects = std::make_shared<pod::InputObjects>();
  for (const Source& source : sources) {
    for (const yaml::Document& document : source.documents) objects->add(document.root);
  }
  return objects;
}

pod::Filtered filter(const Source& source, const std::shared_ptr<const pod::InputObjects>& inputs,
                     const pod::GenerateOptions& options, pod::Budget& budget) {
  return is_function_input(source)
             ? pod::run_function(source.documents[0].root, options, budget).filtered
             : pod::filter(source.documents, inputs, options, budget);
}

}  // namespace fo::fo_podgen
