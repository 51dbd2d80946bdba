package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weirgo/weir/internal/testkit/docblocks"
	"github.com/weirgo/weir/rules"
)

const repository = "../.."

// checked names the tests outside of this file that check blocks, by how the page and the heading
// begin.
var checked = map[string]string{
	"README.md # weir":                          "tools/release TestReadmeInEmptyFolder",
	"README.md ## Redis":                        "tools/release TestReadmeInEmptyFolder",
	"docs/http.md ## Caddy":                     "adapters/caddylimit TestDocsShowTheseTests",
	"docs/http.md ### Caddy":                    "adapters/caddylimit TestDocsShowTheseTests",
	"docs/proxy.md ### The same in Caddy":       "adapters/caddylimit TestDocsShowTheseTests",
	"docs/recipes.md ":                          "examples/pages TestRecipesAreTested",
	"docs/switching.md ## envoyproxy/ratelimit": "cmd/weir TestSwitchingFromEnvoy",
	"docs/internals/architecture.md ":           "proofs/verify TestTheArchitecture",
	"docs/internals/design.md ## Layers":        "proofs/verify TestThePictureHasTheLayers",
	"docs/tutorial.md ":                         "examples/tutorial TestTutorialShowsItsPrograms",
}

// isChecked reports whether a test outside of this file checks the blocks of a heading.
func isChecked(at string) bool {
	for begin := range checked {
		if strings.HasPrefix(at, begin) {
			return true
		}
	}
	return false
}

// The tests that are named exist.
func TestCheckedBlocksNameTests(t *testing.T) {
	for at, test := range checked {
		dir, name, _ := strings.Cut(test, " ")
		files, err := filepath.Glob(filepath.Join(repository, dir, "*_test.go"))
		require.NoError(t, err)
		assert.True(t, slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			return assert.NoError(t, err) && strings.Contains(string(text), "\nfunc "+name+"(")
		}), "%s: %s", at, test)
	}
}

// scenes are what the commands under a heading run in, where that is more than the usual files.
var scenes = map[string]docblocks.Shell{
	// no window ends meanwhile
	"docs/proxy.md # The proxy": {Replace: map[string]string{"10/10s": "10/1d"}},
	"docs/machines.md ## An outage to try out": {
		Ports: []string{"16379", "18081", "18082"},
		Replace: map[string]string{
			"--redis ": "--redis-timeout 2s --redis ", // a busy machine is no outage
			// Requests of another client have each proxy notice that Redis is back, if it has ceased to ask.
			"sleep 1.5\n": `
await 16379
for p in 18081 18082; do
  until ! grep -q to=open $dir/log$p || grep -q to=closed $dir/log$p; do
    curl -s --interface 127.0.0.2 http://127.0.0.1:$p > /dev/null
    sleep 0.1
  done
done
`,
		},
	},
}

// tool is weir in the commands of a page: on the ports of the test, and a server without & only
// until it listens.
const tool = `
weir() {
  case "$1 $2" in
  'proxy '*) set -- proxy --listen 127.0.0.1:8080 --admin 127.0.0.1:8081 "${@:2}" ;;
  'serve '*) set -- serve --http 127.0.0.1:8080 --grpc 127.0.0.1:8081 --admin 127.0.0.1:6070 "${@:2}" ;;
  'why '*)
    case "$*" in *--admin*) ;; *) set -- "$@" --admin 127.0.0.1:8081 ;; esac
    command weir "$@"; return ;;
  'rules reset' | 'rules reload') command weir "$@" --admin 127.0.0.1:6070; return ;;
  'rules diff') command weir "$@" || [ $? = 1 ]; return ;; # the rules differ
  *) command weir "$@"; return ;;
  esac
  if [ $BASHPID != $$ ]; then exec weir "$@"; fi
  command weir "$@" & await 8080
  kill $!
  wait $!
}
`

// TestEveryBlockOfThePagesIsTested goes through all blocks of the README and of docs, except those
// of Go, which TestEveryPieceOfGoIsCompiled and TestReadmeInEmptyFolder compile, and those for
// which another test is named. Commands are run, heading by heading, and print the text that
// follows them. A block that nothing checks is an error.
func TestEveryBlockOfThePagesIsTested(t *testing.T) {
	pages, err := filepath.Glob(repository + "/docs/*.md")
	require.NoError(t, err)
	internals, err := filepath.Glob(repository + "/docs/internals/*.md")
	require.NoError(t, err)
	for _, page := range append(append(pages, internals...), repository+"/README.md") {
		name := strings.TrimPrefix(page, repository+"/")
		text, err := os.ReadFile(page)
		if err != nil {
			t.Skip("not in the repository:", err)
		}
		if !strings.Contains(string(text), "\n```") {
			continue
		}
		title, _, _ := strings.Cut(string(text), "\n")
		below := map[string][]docblocks.Block{}
		var headings []string
		for _, b := range docblocks.Of(t, page, title) {
			if b.Language == "go" {
				continue
			}
			if below[b.Heading] == nil {
				headings = append(headings, b.Heading)
			}
			below[b.Heading] = append(below[b.Heading], b)
		}
		for _, heading := range headings {
			at := name + " " + heading
			if !isChecked(at) {
				t.Run(at, func(t *testing.T) { t.Parallel(); check(t, at, below[heading]) })
			}
		}
	}
}

// check checks the blocks below a heading.
func check(t testing.TB, at string, blocks []docblocks.Block) {
	var commands []string
	want := map[int]string{} // what the commands before it print
	for i, b := range blocks {
		switch {
		case b.Language == "sh":
			commands = append(commands, b.Code)
		case b.Language == "text" && i > 0 && blocks[i-1].Language == "sh":
			want[len(commands)-1] = b.Code
		case b.Language == "text" && at == "docs/http.md ## Decisions":
			line := strings.TrimSpace(logOfDenial(t))
			assert.True(t, docblocks.Shows(strings.ReplaceAll(strings.TrimSpace(b.Code), "\n", " "), line),
				line)
		case b.Language == "yaml" && strings.HasPrefix(b.Code, "domain:"):
			_, err := (&rules.Loader{}).Parse(rules.File{Name: at, Data: []byte(b.Code)})
			assert.NoError(t, err)
		case b.Language == "yaml" && strings.HasPrefix(b.Code, "rate_limits:"):
			envoyReads(t, b.Code)
		default:
			t.Errorf("nothing checks this block:\n```%s\n%s```", b.Language, b.Code)
		}
	}
	if len(commands) == 0 {
		return
	}
	for i, printed := range shellOf(t, at).Run(t, commands...) {
		if text, ok := want[i]; ok {
			assert.True(t, docblocks.Shows(text, printed), "the page has\n%s\nbut\n%s\nprints\n%s",
				text, commands[i], printed)
		}
	}
}

// The rules on their page are those of the file that it names.
func TestRulesPageShowsLimits(t *testing.T) {
	limits, err := os.ReadFile(repository + "/rules/testdata/limits.yaml")
	require.NoError(t, err)
	assert.Equal(t, string(limits), docblocks.Of(t, repository+"/docs/rules.md", "# Rules")[0].Code)
}

// The negative control: what is wrong on a page is an error.
func TestBlocksThatAreWrong(t *testing.T) {
	for what, blocks := range map[string][]docblocks.Block{
		"nothing checks it": {{Language: "text", Code: "hello\n"}},
		"another output": {{Language: "sh", Code: "weir --version\n"},
			{Language: "text", Code: "weir 3\n"}},
		"an unknown flag":        {{Language: "sh", Code: "weir proxy --limt 10/10s\n"}},
		"a mistake in the rules": {{Language: "yaml", Code: "domain: edge\nrules: []\n"}},
		"no field of Envoy's": {{Language: "yaml",
			Code: "rate_limits:\n  - action: [{remote_address: {}}]\n"}},
	} {
		r := &recorder{TB: t}
		check(r, "", blocks)
		assert.True(t, r.failed, what)
	}
}

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }

// shellOf returns a shell in a directory with the files that the commands of the pages read.
func shellOf(t testing.TB, at string) docblocks.Shell {
	t.Helper()
	s := scenes[at]
	s.Dir = t.TempDir()
	s.Prelude = tool
	s.Env = []string{"GORACE=atexit_sleep_ms=0", "WEIR_ADMIN_TOKEN=" + testToken}
	if s.Ports == nil {
		s.Ports = []string{"8080", "8081", "6070"}
	}
	s.Replace = maps.Clone(s.Replace)
	if s.Replace == nil {
		s.Replace = map[string]string{}
	}
	s.Replace["go run ./cmd/weir"] = "weir"
	s.Replace["go run ./cmd/weir rules lint"] = "! weir rules lint" // it finds mistakes

	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(repository, name))
		require.NoError(t, err)
		return string(text)
	}
	log, limits := read("testdata/access.log"), read("rules/testdata/limits.yaml")
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write([]byte(log))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	tail := regexp.MustCompile(`(?m) \d+ "[^"]*" "[^"]*"$`) // the size, the referer and the user agent
	common := tail.ReplaceAllString(log, "")
	for name, text := range map[string]string{
		"access.log": log, "testdata/access.log": log, "access.log.1.gz": packed.String(),
		"nginx.log": common, "apache.log": regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(common,
			"example.com $1"),
		"app.log": strings.Repeat(
			`{"ts": "2026-11-20T12:00:00Z", "client": {"addr": "192.0.2.1"}, "http": {"url": "/", `+
				`"code": 200}}`+"\n"+
				`{"ts": "2026-11-20T12:00:09Z", "client": {"addr": "192.0.2.2"}, "http": {"url": "/", `+
				`"code": 200}}`+"\n", 9),
		"timed.log":   timedLog(),
		"limits.yaml": limits, "limits.new.yaml": strings.Replace(limits, "20", "10", 1),
		"rules/testdata/limits.yaml":   limits,
		"rules/testdata/mistakes.yaml": read("rules/testdata/mistakes.yaml"),
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(s.Dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(s.Dir, name), []byte(text), 0o600))
	}
	return s
}

// timedLog is a log of a service that takes 20 ms, and up to 300 more in five seconds in which
// requests come ten times as fast.
func timedLog() string {
	var b strings.Builder
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	waits := 0 * time.Millisecond
	for i := range 2400 {
		gap := 50 * time.Millisecond
		if i%1200 >= 200 {
			gap = 5 * time.Millisecond
		}
		waits = min(max(0, waits+8*time.Millisecond-gap), 300*time.Millisecond)
		at = at.Add(gap)
		took := 20*time.Millisecond + waits
		end := at.Add(took)
		fmt.Fprintf(&b, "203.0.113.%d %d.%03d \"GET / HTTP/1.1\" 200 %.3f\n", i%3*(i%21), end.Unix(),
			end.Nanosecond()/1e6, took.Seconds())
	}
	return b.String()
}

// logOfDenial returns what the proxy logs of a denial.
func logOfDenial(t testing.TB) string {
	t.Helper()
	return shellOf(t, "").Run(t, `weir proxy --limit 1/1d > log & sleep 1
curl -s http://127.0.0.1:8080 http://127.0.0.1:8080 > /dev/null
kill $!; wait $!
sed -n 's/host=127.0.0.1:[0-9]*/host=127.0.0.1:80''80/; $p' log
`)[0]
}

// envoyReads checks that a part of Envoy's configuration is valid for the types of its routes.
func envoyReads(t testing.TB, text string) {
	t.Helper()
	var parts struct {
		Limits []any `yaml:"rate_limits"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(text), &parts))
	require.NotEmpty(t, parts.Limits)
	for _, part := range parts.Limits {
		limit, err := json.Marshal(part)
		require.NoError(t, err)
		var read route.RateLimit
		assert.NoError(t, protojson.Unmarshal(limit, &read))
		assert.NoError(t, read.Validate())
	}
}
