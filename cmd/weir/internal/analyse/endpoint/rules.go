package endpoint

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Limit is a limit of each caller of an endpoint.
type Limit struct {
	Name      string // of the endpoint
	Requests  uint64 // in a minute
	Algorithm string // of rules; "" means fixed windows
	Burst     uint64 // of a token bucket; 0 means Requests
}

// Rules returns limits as rules. names are all endpoints; caller is the action that keys callers,
// and key the key of its entry. The comment stands first.
func Rules(
	comment string, limits []Limit, names []string, caller map[string]any, key string,
) ([]byte, error) {
	type item = map[string]any
	var descriptors, describers []item
	for _, l := range limits {
		limit := item{"key": key, "rate_limit": item{"unit": "minute", "requests_per_unit": l.Requests}}
		if l.Algorithm != "" {
			of := item{"algorithm": l.Algorithm}
			if l.Burst > 0 {
				of["burst"] = l.Burst
			}
			limit["metadata"] = item{"weir": of}
		}
		descriptors = append(descriptors,
			item{"key": "endpoint", "value": l.Name, "descriptors": []item{limit}})
		method, path, _ := strings.Cut(l.Name, " ")
		headers := []item{{"name": ":method", "string_match": item{"exact": method}},
			matches(pattern(path) + `/*(\?.*)?$`)}
		for _, other := range except(l.Name, names) {
			not := matches(other + `([/?].*)?$`)
			not["invert_match"] = true
			headers = append(headers, not)
		}
		describers = append(describers, item{"actions": []item{{"header_value_match": item{
			"descriptor_key": "endpoint", "descriptor_value": l.Name, "headers": headers}}, caller}})
	}
	var b bytes.Buffer
	for line := range strings.Lines(comment) {
		fmt.Fprintf(&b, "# %s", line)
	}
	b.WriteString("\n")
	text, err := yaml.Dump(item{"domain": "endpoints", "descriptors": descriptors,
		"rate_limits": describers})
	b.Write(text)
	return b.Bytes(), err
}

func matches(regex string) map[string]any {
	return map[string]any{"name": ":path",
		"string_match": map[string]any{"safe_regex": map[string]any{"regex": regex}}}
}

// pattern returns a regular expression for the beginning of paths, with any letter case and number
// of slashes.
func pattern(path string) string {
	var b strings.Builder
	b.WriteString(`(?i)^`)
	for _, s := range strings.Split(strings.TrimPrefix(path, "/"), "/") {
		b.WriteString("/+")
		switch s {
		case anyID:
			b.WriteString(idPattern)
		case anyName:
			b.WriteString(`[^/?]+`)
		default:
			b.WriteString(regexp.QuoteMeta(s))
		}
	}
	return b.String()
}

// except returns patterns for the paths that begin as one of the other endpoints does where name
// has a folded name.
func except(name string, names []string) (all []string) {
	segments := strings.Split(name, "/")
	seen := make(map[string]bool)
	for i, s := range segments {
		if s != anyName {
			continue
		}
		before := strings.Join(segments[:i], "/") + "/"
		for _, other := range names {
			rest, ok := strings.CutPrefix(other, before)
			sibling, _, _ := strings.Cut(rest, "/")
			if full := before + sibling; ok && sibling != anyName && sibling != "" && !seen[full] {
				seen[full] = true
				_, path, _ := strings.Cut(full, " ")
				all = append(all, pattern(path))
			}
		}
	}
	return all
}
