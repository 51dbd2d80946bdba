package envoy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	_ "google.golang.org/protobuf/types/known/structpb" // the type of metadata

	"github.com/weirgo/weir/rules"
)

// typeURL is the type of the resources.
const typeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// schema describes RateLimitConfig. Its published Go code, of package go-control-plane/ratelimit,
// knows neither quota_mode and metadata nor units longer than a day.
const schema = `
syntax: "proto3"
name: "ratelimit/config/ratelimit/v3/rls_conf.proto"
package: "ratelimit.config.ratelimit.v3"
dependency: "google/protobuf/struct.proto"
message_type {
  name: "RateLimitConfig"
  field { name: "name" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "domain" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "descriptors" number: 3 type_name: "RateLimitDescriptor" label: LABEL_REPEATED }
}
message_type {
  name: "RateLimitDescriptor"
  field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "value" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "rate_limit" number: 3 type_name: "RateLimitPolicy" label: LABEL_OPTIONAL }
  field { name: "descriptors" number: 4 type_name: "RateLimitDescriptor" label: LABEL_REPEATED }
  field { name: "shadow_mode" number: 5 type: TYPE_BOOL label: LABEL_OPTIONAL }
  field { name: "detailed_metric" number: 6 type: TYPE_BOOL label: LABEL_OPTIONAL }
  field { name: "quota_mode" number: 7 type: TYPE_BOOL label: LABEL_OPTIONAL }
  field { name: "metadata" number: 8 type_name: ".google.protobuf.Struct" label: LABEL_OPTIONAL }
}
message_type {
  name: "RateLimitPolicy"
  field { name: "unit" number: 1 type_name: "RateLimitUnit" label: LABEL_OPTIONAL }
  field { name: "requests_per_unit" number: 2 type: TYPE_UINT32 label: LABEL_OPTIONAL }
  field { name: "unlimited" number: 3 type: TYPE_BOOL label: LABEL_OPTIONAL }
  field { name: "name" number: 4 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "replaces" number: 5 type_name: "RateLimitReplace" label: LABEL_REPEATED }
}
message_type {
  name: "RateLimitReplace"
  field { name: "name" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
}
enum_type {
  name: "RateLimitUnit"
  value { name: "UNKNOWN" number: 0 }
  value { name: "SECOND" number: 1 }
  value { name: "MINUTE" number: 2 }
  value { name: "HOUR" number: 3 }
  value { name: "DAY" number: 4 }
  value { name: "MONTH" number: 5 }
  value { name: "YEAR" number: 6 }
  value { name: "WEEK" number: 7 }
}`

// configType is the type of the message RateLimitConfig. It is not registered, so that a program
// may link its published Go code too.
var configType = func() protoreflect.MessageDescriptor {
	var file descriptorpb.FileDescriptorProto
	if err := prototext.Unmarshal([]byte(schema), &file); err != nil {
		panic(err)
	}
	d, err := protodesc.FileOptions{AllowUnresolvable: false}.New(&file, protoregistry.GlobalFiles)
	if err != nil {
		panic(err)
	}
	return d.Messages().ByName("RateLimitConfig")
}()

// bounded bounds how deep messages are nested before they are converted: JSON and YAML take time
// and memory by more than their length.
var bounded = proto.UnmarshalOptions{RecursionLimit: 1000}

// files converts resources to files of rules, in the order of their names. JSON is YAML, and its
// fields have the names that they have in a file.
func files(resources []*anypb.Any) ([]rules.File, error) {
	var list []rules.File
	for i, r := range resources {
		if r.GetTypeUrl() != typeURL {
			return nil, fmt.Errorf("resource %d is a %q; want %q", i, r.GetTypeUrl(), typeURL)
		}
		m := dynamicpb.NewMessage(configType)
		if err := bounded.Unmarshal(r.GetValue(), m); err != nil {
			return nil, fmt.Errorf("resource %d: %w", i, err)
		}
		field := configType.Fields().ByName("name")
		name := cmp.Or(m.Get(field).String(), fmt.Sprint("resource ", i))
		m.Clear(field)
		text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("resource %q: %w", name, err)
		}
		// One field a line, for the positions of mistakes. Indents would make it longer by the square of
		// the depth.
		var lines bytes.Buffer
		if err := json.Indent(&lines, text, "", ""); err != nil {
			return nil, fmt.Errorf("resource %q: %w", name, err)
		}
		list = append(list, rules.File{Name: name, Data: lines.Bytes()})
	}
	slices.SortStableFunc(list, func(a, b rules.File) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}
