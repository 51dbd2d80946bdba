package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMessagesAsPrinted has mistakes in rules and in command lines, and the first line that is
// printed: the word, the place, and the remedy.
func TestMessagesAsPrinted(t *testing.T) {
	const limit, second = "unit: day, requests_per_unit: 1", "; for a second limit, add a generic_key to the actions of " +
		"another item of rate_limits, and a descriptor with that key"
	const spaces = "; indent a line by as many spaces as those of the same map or list"
	const actions = "want one of context_value, generic_key, header_value_match, masked_remote_address, path, " +
		"path_template, query_parameter_value_match, query_parameters, remote_address, remote_address_match, request_headers"
	const head = "domain: d\ndescriptors:\n"
	t.Chdir(t.TempDir())
	for _, row := range []struct{ file, args, want string }{
		{head + "\t- key: k\n", "", "limits.yaml:3:1: error loading config file: found character that cannot start any " +
			"token while scanning for the next token; line 3 is indented by a tab: YAML wants spaces"},
		{head + "  - key: k\n\trate_limit: {" + limit + "}\n", "", "limits.yaml:4:1: error loading config file: found a tab " +
			"character that violates indentation while scanning a plain scalar; line 4 is indented by a tab: YAML wants spaces"},
		{head + "  - key: k\n   rate_limit: {" + limit + "}\n", "", "limits.yaml:4:4: error loading config file: did not " +
			"find expected '-' indicator while parsing a block collection" + spaces},
		{head + "  - key: k\n rate_limit:\n", "", "limits.yaml:4:2: error loading config file: did not find expected key " +
			"while parsing a block mapping" + spaces},
		{"domain: d\n descriptors:\n", "", "limits.yaml:2:13: error loading config file: mapping values are not allowed in " +
			"this context" + spaces},
		{"domain: d\nrate_limits:\n  - actions: [{header: {}}]\n", "", "limits.yaml:3:16: unknown action 'header'; " + actions},
		{"domain: d\nrate_limits:\n  - actions: [{destination_cluster: {}}]\n", "", "limits.yaml:3:16: unknown action " +
			"'destination_cluster': it is one of Envoy, which makes its descriptors itself; without Envoy, " + actions},
		{"domain: d\nrate_limits:\n  - actions: [{remote_address: {x: 1}}]\n", "",
			"limits.yaml:3:33: unknown key 'x' in remote_address, which has none"},
		{"domain: d\nlimits: []\n", "", "limits.yaml:2:1: config error, unknown key 'limits'; want one of domain, " +
			"descriptors, rate_limits, metadata"},
		{head + "  - {key: k, rate_limit: {unit: min, requests_per_unit: 1}}\n", "",
			"limits.yaml:3:33: invalid rate limit unit 'min'; did you mean 'minute'?"},
		{head + "  - {key: k, rate_limit: {unit: secs, requests_per_unit: 1}}\n", "",
			"limits.yaml:3:33: invalid rate limit unit 'secs'; did you mean 'second'?"},
		{"apiVersion: v1\nkind: ConfigMap\ndata:\n  config.yaml: |\n    domain: d\n", "", "limits.yaml:1:1: this is an object of " +
			"Kubernetes, of the kind ConfigMap, and no rules: the rules are in data.'config.yaml', which is to be a file of its own"},
		{head + "  - key: k\n    rate_limit: {" + limit + "}\n    rate_limit: {" + limit + "}\n", "", "limits.yaml:5:5: error " +
			"loading config file: key 'rate_limit' already set in map, at line 4" + second},
		{head + "  - {key: k, rate_limit: {" + limit + "}}\n  - {key: k, rate_limit: {" + limit + "}}\n", "",
			"limits.yaml:4:5: duplicate descriptor composite key 'd.k'; the first is at line 3" + second},
		{head + "  - {key: k, rate_limit: 5}\n", "", "limits.yaml:3:26: error loading config file: cannot unmarshal 5 into " +
			"rate_limit; want a map"},
		{head + "  - {key: k, algorithm: fixed_window}\n", "", "limits.yaml:3:14: config error, unknown key 'algorithm'; it " +
			"belongs in metadata.weir of a descriptor"},
		{head + "  - {key: k, rate_limit: [{" + limit + "}]}\n", "", "limits.yaml:3:26: error loading config file: cannot " +
			"unmarshal a list into rate_limit; want a map" + second},
		{head + "  - {key: k, rate_limits: [{" + limit + "}]}\n", "", "limits.yaml:3:14: warning: 'rate_limits' has no effect " +
			"in a descriptor: its limit is 'rate_limit', and the actions of all descriptors stand at the top of the file"},
		{"domain: d\n", "", `limits.yaml:1:9: warning: domain 'd' has no rate_limit, and limits nothing; to have none, ` +
			`write "descriptors: []" in that domain`},
		{head + "  - key: k\n", "", `limits.yaml:1:9: warning: domain 'd' has no rate_limit, and limits nothing; to have ` +
			`none, write "descriptors: []" in that domain`},
		{"domain: d\ndescriptors: []\n", "", "0 rules in 1 domain"},
		{"", "rules lint", "weir: which rules? Name a file or a directory"},
		{"", "rules explain", "weir: which rules? Name a file or a directory"},
		{"", "rules test --tests x", "weir: which rules? Name a file or a directory"},
		{"", "rules diff a", "weir: want two files or directories of rules, OLD and NEW, not 1"},
		{"", "rules schema x", `weir: weir rules schema takes no arguments, such as "x": leave it out`},
		{"", "version x", `weir: weir version takes no arguments, such as "x": leave it out`},
	} {
		require.NoError(t, os.WriteFile("limits.yaml", []byte(row.file), 0o600))
		if row.args == "" {
			row.args = "rules lint limits.yaml"
		}
		var printed strings.Builder
		run(strings.Fields(row.args), nil, &printed, &printed)
		first, _, _ := strings.Cut(printed.String(), "\n")
		assert.Equal(t, row.want, first, "%s: %s", row.args, row.file)
	}
}
