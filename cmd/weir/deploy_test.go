package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/weirgo/weir/cmd/weir/internal/serve/servercmd"
)

const deploy = "../../examples/deploy/"

// argsOf returns the list of words at a key of a file in YAML, wherever it is.
func argsOf(t *testing.T, file, key string) (args []string) {
	t.Helper()
	text, err := os.ReadFile(deploy + file)
	require.NoError(t, err)
	docs := yaml.NewDecoder(bytes.NewReader(text))
	var find func(n *yaml.Node)
	find = func(n *yaml.Node) {
		for i, child := range n.Content {
			if n.Kind == yaml.MappingNode && i > 0 && n.Content[i-1].Value == key &&
				child.Kind == yaml.SequenceNode && args == nil {
				require.NoError(t, child.Decode(&args))
			}
			find(child)
		}
	}
	for {
		var doc yaml.Node
		if docs.Decode(&doc) != nil {
			break
		}
		find(&doc)
	}
	require.NotEmpty(t, args, file)
	return args
}

// TestDeployments checks that the tool takes the arguments of the files in examples/deploy, and
// with systemd-analyze, where it is, that systemd takes its units.
func TestDeployments(t *testing.T) {
	unit, err := os.ReadFile(deploy + "weir.service")
	require.NoError(t, err)
	start := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/weir (.*)$`).FindStringSubmatch(string(unit))
	require.NotNil(t, start)
	for file, args := range map[string][]string{
		"weir.service": strings.Fields(strings.Replace(start[1], "/etc/weir.yaml", "--limit 100/1m", 1)),
		"compose":      argsOf(t, "compose.yaml", "command"),
		"kubernetes":   argsOf(t, "kubernetes.yaml", "args"),
	} {
		require.Equal(t, "proxy", args[0], file)
		cfg, err := servercmd.ProxyConfig(args[1:])
		require.NoError(t, err, file)
		assert.NoError(t, cfg.Check(), file)
	}
	assert.Equal(t, []string{"CMD", "/weir", "health"}, argsOf(t, "compose.yaml", "test"))

	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze")
	}
	dir := t.TempDir()
	weir, err := exec.LookPath("weir")
	require.NoError(t, err)
	units := []string{"weir.socket", "weir.service"}
	for i, name := range units {
		text, err := os.ReadFile(deploy + name)
		require.NoError(t, err)
		units[i] = filepath.Join(dir, name)
		text = bytes.ReplaceAll(text, []byte("/usr/local/bin/weir "), []byte(weir+" "))
		require.NoError(t, os.WriteFile(units[i], text, 0o600))
	}
	said, err := exec.Command(analyze, append([]string{"verify", "--man=no"}, units...)...).CombinedOutput()
	require.NoError(t, err, "%s", said)
	assert.NotContains(t, string(said), dir, "no warning about these units")
}
