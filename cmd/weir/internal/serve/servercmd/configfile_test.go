package servercmd

import (
	"bytes"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/serve/proxy"
)

// configured returns the flags of a weir proxy with this file and these arguments.
func configured(t *testing.T, text string, args ...string) (*proxyFlags, *pflag.FlagSet, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "weir.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	f := new(proxyFlags)
	cmd := f.command()
	require.NoError(t, cmd.ParseFlags(args))
	_, err := readConfig(cmd, file)
	return f, cmd.Flags(), err
}

// quiet makes a configuration that logs nothing.
func quiet(f *proxyFlags, given func(string) bool) (proxy.Config, error) {
	return f.config(given, io.Discard, io.Discard)
}

func TestAFileSetsFlags(t *testing.T) {
	f, flags, err := configured(t, `
upstream: http://u:1
limit: [100/1m, "burst=10/1s:token"]
route: POST /login limit=5/1m
trust: 10.0.0.0/8,::1
deny: ["192.0.2.1", "a,b"]
max-conns: 7
shadow: true
drain: 3s
status: 503
`, "--status", "418", "--limit", "1/1s")
	require.NoError(t, err)
	cfg, err := f.config(flags.Changed, io.Discard, io.Discard)
	require.NoError(t, err)
	require.Len(t, cfg.Limits, 1, "the command line comes before the file")
	assert.Equal(t, "1/1s", cfg.Limits[0].Name)
	assert.Equal(t, []any{418, 7, true, "3s", 2, 2}, []any{cfg.Guard.DeniedStatus, cfg.MaxConns, cfg.Guard.Shadow,
		cfg.Drain.String(), len(cfg.Trust), len(cfg.Deny)})
	assert.Equal(t, "a,b", cfg.Deny[1].Key, "an item of a list is not split")
	assert.Equal(t, "/login", strings.Fields(cfg.Routes[0].Pattern)[1])
}

func TestMistakesInAConfigFile(t *testing.T) {
	_, _, err := configured(t, `limits: 100/1m
limit: 1/1s
limit: 2/1s
listen: [a]
max-conns: many
shadow: perhaps
help: true
print-config: true
trust: {a: b}
route: []
allow: [~]
by:
keep: 5
`)
	require.Error(t, err)
	for i, want := range []string{
		`:1:1: unknown setting "limits"; did you mean limit?`, `:3:1: limit is set in line 2 already`,
		`:4:9: listen: want one value, not a list`, `:5:12: max-conns: want a whole number, not "many"`,
		`:6:9: shadow: want true or false, not "perhaps"`, `:7:1: unknown setting "help"`,
		`:8:1: unknown setting "print-config"`, `:9:8: trust: want a value or a list of values`,
		`:11:9: allow: want a value`, `:12:4: by: want a value`,
		`:13:7: keep: want a duration such as 5s or 1m30s, not "5"`,
	} {
		lines := strings.Split(err.Error(), "\n")
		require.Greater(t, len(lines), i, err)
		assert.Contains(t, lines[i], want)
	}
	for text, want := range map[string]string{
		"- limit": ":1:1: want a map from the names", "limit: [": ":1:", "a: b: c": ":1:",
		"limit: 1/1m\nroute: x\n  shadow: true": "weir.yaml:3:9: mapping values are not allowed",
		"shadow: true\n---\nnonsense: 7\n":      ":3:1: a second document",
	} {
		_, _, err := configured(t, text)
		assert.ErrorContains(t, err, want, text)
	}
	for _, text := range []string{"", "# nothing\n"} {
		_, _, err := configured(t, text)
		assert.NoError(t, err)
	}
	assert.EqualError(t, newProxy().ValidateArgs([]string{"a", "b"}), "want one file of settings, not 2: a b")
	assert.EqualError(t, newProxy().ValidateArgs([]string{"250ms"}),
		`"250ms" is no file of settings; if it is a goal, write --overload=250ms`)
	_, _, err = configured(t, "overload: soon")
	assert.ErrorContains(t, err, `:1:11: overload: want how long a request may take, such as 250ms`)
	_, err = readConfig(newProxy(), filepath.Join(t.TempDir(), "none"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// TestMistakesOfMeaningSayWhere has values that are of the right type, and wrong: the error is at
// the value, or at the first of two flags that exclude each other.
func TestMistakesOfMeaningSayWhere(t *testing.T) {
	for _, of := range []struct{ text, args, want string }{
		{"limit: [1/1m, nine/1m]", "", `weir.yaml:1:15: limit "nine/1m": "nine" is not a count`},
		{"limit: 1/1m\nstrategy: slidng", "", `weir.yaml:2:11: --strategy must be fixed, sliding, log`},
		{"limit: 1/1m\nroute:\n  - / limit=1/1m\n  - /x limit=x", "", `weir.yaml:4:5: route "/x limit=x"`},
		{"limit: 1/1m\ntrust: [::1, nobody]", "", `weir.yaml:2:14: --trust: "nobody" is neither`},
		{"limit: 1/1m\ndeny: 1.2.3.4:80", "", `weir.yaml:2:7: --deny: want an address without a port`},
		{"limit: 1/1m\nkeep: 0s", "", `weir.yaml:2:7: --keep must be positive, not 0s`},
		{"limit: 1/1m\nmax-conns: -1", "", `weir.yaml:2:12: --max-conns must not be negative, but is -1`},
		{"limit: 1/1m\nheaders: darft", "", `weir.yaml:2:10: --headers must be draft`},
		{"rules: a.yaml\nlimit: 1/1m", "", `weir.yaml:2:1: --limit and --rules exclude each other`},
		{"rules: a.yaml", "--limit 1/1m", `weir.yaml:1:1: --limit and --rules exclude each other`},
		{"limit: 1/1m\nroute:\n  - / limit=1/1m\n  - '/{x limit=1/1m'", "", `weir.yaml:4:5: route "/{x"`},
		{"limit: 1/1m\nroute:\n  - / limit=1/1m\n  - /x", "", `weir.yaml:4:5: route "/x": want a limit`},
		{"limit: [1/1m, 2/1m, 1/1m]", "", `weir.yaml:1:21: two limits are named "1/1m": leave one out`},
		{"route: POST /a limit=2/1m bogus=3", "", `weir.yaml:1:8: route "POST /a limit=2/1m bogus=3": ` +
			`"bogus=3" is unknown: want limit=LIMIT or cost=N`},
		{"limit: 1/1m\nroute: [/ cost=2, /a bogus cost=3]", "", `weir.yaml:2:19: route "/a bogus": "bogus" is`},
		{"route: POST /b lmit=1/1m", "", `weir.yaml:1:8: route "POST /b lmit=1/1m": "lmit=1/1m" is unknown: ` +
			`want limit=LIMIT or cost=N; did you mean limit?`},
		{"route: lmit=1/1m limit=1/1m", "", `weir.yaml:1:8: route "lmit=1/1m": "lmit=1/1m" is unknown`},
		{"route: FETCH a limit=1/1m", "", `weir.yaml:1:8: route "FETCH a": want a path that begins with a slash`},
		{"limit: 1/1m\nroute: [/a cost=2, /a cost=3]", "",
			`weir.yaml:2:20: route "/a" is given twice: leave one out, or give one route with all limits`},
		{"route: FETCH a", "", `weir.yaml:1:8: route "FETCH a": want a path that begins with a slash`},
		{"route: GET a.example /x limit=1/1m", "", `weir.yaml:1:8: route "GET a.example /x": want a path`},
		{"limit: 1/1m\nredis: 127.0.0.1:6379", "", `weir.yaml:2:8: --redis must be redis://`},
		{"limit: 1/1m\nredis: redis+cluster://a,b/1", "", `weir.yaml:2:8: --redis has the path "/1": a Cluster has no`},
		{"limit: 1/1m\ntls-cert: a.pem", "", `weir.yaml:2:1: --tls-cert needs --tls-key`},
		{"limit: 1/1m\ntls-key: a.pem", "", `weir.yaml:2:1: --tls-cert needs --tls-key`},
		{"limit: 1/1m\nlisten: 8080", "", `weir.yaml:2:9: --listen must be HOST:PORT, not "8080"; did you mean ":8080"?`},
		{"limit: 1/1m\nlisten: localhost", "", `weir.yaml:2:9: --listen must be HOST:PORT, not "localhost"`},
		{"limit: 1/1m\nadmin: 81", "", `weir.yaml:2:8: --admin must be HOST:PORT, not "81"; did you mean "127.0.0.1:81"?`},
		{"limit: 1/1m\nadmin: :81", "", `weir.yaml:2:8: admin address ":81" is not a loopback address`},
		{"shadow: true", "", "which limit?"},
		{"limit: 1/1m\nby: ip+pattern", "", `weir.yaml:2:5: by pattern tells routes apart`},
		{"limit: [1/1m, 2/1m:leaky]\nredis: redis://r", "",
			`weir.yaml:1:15: limit 2/1m: strategy leaky makes requests wait`},
		{"limit: '1/1m,2/1m'", "", `weir.yaml:1:8: bad scale: two tiers of 1m0s`},
		{"limit: 1/1m\nlisten: :99999", "",
			`weir.yaml:2:9: --listen must be HOST:PORT, not ":99999"; there is no port "99999"`},
		{"limit: 1/1m\nadmin: '[::1]:moon'", "", `weir.yaml:2:8: --admin must be HOST:PORT, not "[::1]:moon"; there`},
		{"limit: 1/1m\ndeny: [a, 'key:']", "",
			`weir.yaml:2:11: --deny: httplimit: a deny list entry is either a key or a prefix`},
		{"limit: 1/1m\ndeny: [a, b]\nmax-deny: 1", "", `weir.yaml:2:11: --deny: httplimit: deny list is full`},
		{"limit: 1/1m\nredis: redis://r\nredis-prefix: '{'", "",
			`weir.yaml:3:15: redislimit: bad config: braces in prefix "{"`},
		{"limit: 1/1m\nredis-timeout: -1s", "", `weir.yaml:2:16: --redis-timeout must not be negative`},
		{"limit: 1/1m\nredis-probe: -1s", "", `weir.yaml:2:14: --redis-probe must not be negative`},
		{"limit: 1/1m\npenalty-box: 1/1ns=1m", "", `httplimit: policy "penalty": the Duration 1ns is not`},
		{"limit: 1/1m\naddress-path: x", "", `weir.yaml:2:15: the path "x" of the address`},
		{"overload: true\nclass: [/a=critical, /b=high]", "",
			`weir.yaml:2:22: --class: class "/b=high": want sheddable, normal or critical, not "high"`},
		{"overload: 250ms\nclass: [/a=critical, a=normal]", "", `weir.yaml:2:22: class of "a": want a path`},
		{"limit: 1/1m\nclass: /a=critical", "", `weir.yaml:2:8: --class has no effect without --overload`},
		{"limit: 1/1m", "--limit nine", `limit "nine": want`},
		{"limit: 1/1m", "--keep 0s", `--keep must be positive`},
	} {
		f := new(proxyFlags)
		cmd := f.command()
		require.NoError(t, cmd.ParseFlags(strings.Fields(of.args)))
		file := filepath.Join(t.TempDir(), "weir.yaml")
		require.NoError(t, os.WriteFile(file, []byte(of.text+"\n"), 0o600))
		read, err := readConfig(cmd, file)
		require.NoError(t, err, of.text)
		cfg, err := f.config(cmd.Flags().Changed, io.Discard, io.Discard)
		if err == nil {
			err = cfg.Check()
		}
		require.Error(t, err, of.text)
		text := read.located(err).Error()
		var out bytes.Buffer
		dry := newProxy()
		dry.SetArgs(append(strings.Fields(of.args), file, "--print-config"))
		dry.SetOut(&out)
		dry.SilenceErrors, dry.SilenceUsage = true, true
		assert.EqualError(t, dry.Execute(), text)
		assert.Empty(t, out.String())
		if strings.HasPrefix(of.want, "weir.yaml") {
			text = strings.TrimPrefix(text, filepath.Dir(file)+string(filepath.Separator))
		}
		assert.True(t, strings.HasPrefix(text, of.want), "%s\n%s", text, of.want)
		assert.NotContains(t, text, ".go:")
	}
}

// TestThePrintedConfigIsTheSame prints a configuration in which every flag is set, and reads it.
func TestThePrintedConfigIsTheSame(t *testing.T) {
	f := new(proxyFlags)
	cmd := f.command()
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		text := flag.DefValue
		switch flag.Value.Type() {
		case "bool":
			text = "true"
		case "duration":
			text = "17s"
		case "int", "int64", "uint64":
			text = "18"
		case "stringSlice", "stringArray":
			require.NoError(t, cmd.Flags().Set(flag.Name, "one: #1 'x'"))
			text = "two"
		case "string":
			text = "a \\ \"b\" # c"
		case "algorithm":
			text = "sliding_log"
		}
		require.NoError(t, cmd.Flags().Set(flag.Name, text), flag.Name)
	})
	var out bytes.Buffer
	require.NoError(t, printConfig(&out, cmd, nil))
	_, read, err := configured(t, out.String())
	require.NoError(t, err, out.String())
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "help" && flag.Name != "print-config" {
			assert.Equal(t, flag.Value.String(), read.Lookup(flag.Name).Value.String(), flag.Name)
			assert.True(t, read.Lookup(flag.Name).Changed, flag.Name)
		}
	})

	// Without a flag all of it is comments.
	out.Reset()
	require.NoError(t, printConfig(&out, newProxy(), nil))
	for line := range strings.Lines(out.String()) {
		assert.True(t, line == "\n" || strings.HasPrefix(line, "#"), line)
	}
}

// TestWhatAFileCannotChange has a running proxy follow files with mistakes, and with settings that
// take a restart: nothing changes.
func TestWhatAFileCannotChange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write("limit: a=1/1d\nmax-conns: 9\n")
	f := new(proxyFlags)
	cmd := f.command()
	require.NoError(t, cmd.ParseFlags([]string{"--status", "418", "--trust", "::1,10.0.0.0/8"}))
	cmd.Flags().Visit(func(flag *pflag.Flag) { f.given = append(f.given, flag) })
	_, err := readConfig(cmd, file)
	require.NoError(t, err)
	cfg, err := f.config(cmd.Flags().Changed, io.Discard, io.Discard)
	require.NoError(t, err)
	p, err := proxy.New(cfg)
	require.NoError(t, err)
	r := &reloader{proxy: p, file: file, given: f.given, flags: cmd.Flags(), cfg: cfg,
		log: newFormats(cfg.Log.Handler()), make: quiet}
	ask := func() int {
		w := httptest.NewRecorder()
		p.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		return w.Code
	}
	assert.Equal(t, []int{200, 418}, []int{ask(), ask()})
	for text, want := range map[string]string{
		"limit: a=9/1d\nlisten: 127.0.0.1:1\nkeep: 1s": "listen, keep cannot be changed without a restart",
		"limit: nine\nallow: nobody\nkeep: 1s":         `limit "nine"`,
		"limit: 1/1m\nallow: nobody\njitter: -1s":      "--jitter must not be negative",
		"limit: a=9/1d\nmax-conns: 9\nlimitt: 3":       `unknown setting "limitt"; did you mean limit?`,
		"limit: nine\nmax-conns: 9":                    `limit "nine"`,
		"rules: x.yaml\nmax-conns: 9":                  "rules cannot be changed without a restart",
		"limit: a=9/1d\nroute: /login\nmax-conns: 9":   "want a limit or a cost",
		"limit: a=9/1d\ntry: 1/1s:leaky\nmax-conns: 9": "a leaky bucket has requests wait",
		"max-conns: 9": "which limit?",
	} {
		write(text)
		changed, err := r.reconfigure()
		assert.ErrorContains(t, err, want, text)
		assert.False(t, changed)
		if strings.Contains(text, "nobody") { // all mistakes are named
			assert.ErrorContains(t, err, `--allow: "nobody" is neither`)
		}
		assert.Equal(t, 418, ask())
	}
	write("limit: a=1/1d\nmax-conns: 9\n# the same\n")
	changed, err := r.reconfigure()
	require.NoError(t, err)
	assert.False(t, changed, "nothing has changed")
	write("limit: a=3/1d\nmax-conns: 9\n")
	changed, err = r.reconfigure()
	require.NoError(t, err)
	assert.True(t, changed)
	assert.Equal(t, []int{200, 200, 418}, []int{ask(), ask(), ask()}, "one was counted before")
	write("limit: a=3/1d\nmax-conns: 9\nheaders: draft\n")
	changed, err = r.reconfigure()
	require.NoError(t, err)
	assert.True(t, changed, "the default is set, and may differ from none")
}

// TestACutFileOfSettingsChangesNothing leaves the first of many routes.
func TestACutFileOfSettingsChangesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weir.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	text := "limit: 9/1d\nroute:\n"
	for i := range 20 {
		text += fmt.Sprintf("- /%d limit=1/1d\n", i)
	}
	write(text)
	f := new(proxyFlags)
	cmd := f.command()
	read, err := readConfig(cmd, file)
	require.NoError(t, err)
	cfg, err := f.config(cmd.Flags().Changed, io.Discard, io.Discard)
	require.NoError(t, read.located(err))
	p, err := proxy.New(cfg)
	require.NoError(t, err)
	r := &reloader{proxy: p, file: file, given: f.given, flags: cmd.Flags(), cfg: cfg,
		log: newFormats(cfg.Log.Handler()), make: quiet}
	for end, want := range map[string]error{"": cli.ErrCut, "# end\n": nil} {
		write("limit: 9/1d\nroute:\n- /0 limit=1/1d\n" + end)
		r.flags = cmd.Flags()
		changed, err := r.reconfigure()
		assert.ErrorIs(t, err, want)
		assert.Equal(t, want == nil, changed)
	}
	write("limit: 9/1d\nroute:\n- /0 limit=1/1d\n- /1")
	_, err = r.reconfigure()
	assert.Error(t, err)
}

// TestListsInAFile has lists whose items the command line could not take, and empty ones, on the
// command line and in a file, through a reload too.
func TestListsInAFile(t *testing.T) {
	for _, args := range [][]string{
		{"--limit", "1/1d", "--trust", ""}, {"--limit", "1/1d", "--deny", `"key:""<b>"`},
	} {
		f := new(proxyFlags)
		cmd := f.command()
		require.NoError(t, cmd.ParseFlags(args))
		cmd.Flags().Visit(func(flag *pflag.Flag) { f.given = append(f.given, flag) })
		var printed bytes.Buffer
		require.NoError(t, printConfig(&printed, cmd, nil))
		_, flags, err := configured(t, printed.String())
		require.NoError(t, err)
		for _, name := range []string{"trust", "deny"} {
			assert.Equal(t, cmd.Flags().Lookup(name).Value.String(), flags.Lookup(name).Value.String(), name)
		}
		cfg, err := f.config(cmd.Flags().Changed, io.Discard, io.Discard)
		require.NoError(t, err)
		p, err := proxy.New(cfg)
		require.NoError(t, err)
		file := filepath.Join(t.TempDir(), "weir.yaml")
		require.NoError(t, os.WriteFile(file, []byte("status: 420\n"), 0o600))
		r := &reloader{proxy: p, file: file, given: f.given, flags: cmd.Flags(), cfg: cfg,
			log: newFormats(cfg.Log.Handler()), make: quiet}
		_, err = r.reconfigure()
		require.NoError(t, err)
	}
	_, _, err := configured(t, "help: true")
	assert.NotContains(t, err.Error(), "did you mean")
}
