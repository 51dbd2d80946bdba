package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/replay"
	"github.com/weirgo/weir/cmd/weir/internal/check/rulestest"
	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/rules"
)

type explainFlags struct {
	loader      rules.Loader
	domain      string
	descriptors []string
	request     string
	http        rulestest.HTTP
	headers     []string
	target      string // METHOD PATH, or PATH
	line        string // of an access log
	lines       replayFlags
}

func newRulesExplain() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use: "explain PATH... " +
			"--descriptor KEY=VALUE,... | --request FILE | --http REQUEST | --line LINE",
		Short: "Print which rule limits a request, and why",
		Long: `Explain looks up each descriptor of a request in the rules. It prints which descriptor of the
file is chosen at each step, and why, and then what the rules decide on the request if it is the
first.

A descriptor is written KEY=VALUE,KEY=VALUE; keys and values may be quoted as in Go. A request is
JSON, as Envoy's service accepts it at /json:

  {"domain": "edge", "descriptors": [{"entries": [{"key": "plan", "value": "free"}]}]}

--http is an HTTP request, with --header, --address and --user, and --line is a line of an access
log, in the formats of weir replay. Explain prints which descriptor each of the domain's rate_limits
makes of it, by which actions, and then the rule, the limit and the verdict of each descriptor.`,
		Example: "  weir rules explain limits.yaml --descriptor plan=free,user=ann\n" +
			"  weir rules explain limits.yaml --request request.json\n" +
			"  weir rules explain limits.yaml " +
			"--http 'POST /login' --header 'Plan: free' --address 192.0.2.7\n" +
			"  weir rules explain limits.yaml --line \"$(tail -n 1 access.log)\"",
		Args: cli.Files("rules"),
		RunE: f.run,
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.descriptors, "descriptor", "d", nil,
		"a descriptor, `KEY=VALUE,...` (repeatable)")
	flags.StringVar(&f.domain, "domain", "", "the domain of the descriptors (default the only one)")
	flags.StringVar(&f.request, "request", "",
		"a JSON `file` with a request, or - for the standard input")
	flags.StringVar(&f.target, "http", "", "an HTTP request, `'METHOD PATH'`; without METHOD, GET")
	flags.StringArrayVar(&f.headers, "header", nil, "a header of --http, `'NAME: VALUE'` (repeatable)")
	flags.StringVar(&f.http.Address, "address", "", "the client's `address` for --http")
	flags.StringVar(&f.http.User, "user", "", "the context `value` \"user\" for --http")
	flags.StringVar(&f.line, "line", "", "a `line` of an access log")
	flags.StringVar(&f.lines.format, "format", "auto", "the `format` of --line, as for weir replay")
	flags.StringVar(&f.lines.logFormat, "log-format", "", "the format of --line, as for weir replay")
	flags.StringSliceVar(&f.lines.trust, "trust", nil,
		"the `addresses` and prefixes of proxies whose X-Forwarded-For names the client (repeatable)")
	cli.AddLoader(cmd, &f.loader)
	cli.Help(cmd)
	return cmd
}

func (f *explainFlags) run(cmd *cobra.Command, paths []string) error {
	set, err := f.loader.LoadFiles(paths...)
	if err != nil {
		return err
	}
	req, err := f.read(set, cmd.InOrStdin())
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if req == nil {
		req, err = f.describe(out, set)
		if err != nil {
			return err
		}
	}
	engine, err := rules.New(set, rules.Config{})
	if err != nil {
		return cli.Failure(err)
	}
	defer engine.Close()
	if len(req.Descriptors) == 0 {
		fmt.Fprintln(out, "overall: OK, since the request has no descriptors")
		return nil
	}
	resp := new(rules.Response)
	if _, err := engine.Hold(cmd.Context(), req, resp); err != nil {
		return err
	}
	for i, d := range req.Descriptors {
		if d.Override != nil {
			fmt.Fprintf(out, "domain %s\nthe request overrides the rules\n", screen.Lines(req.Domain))
		} else {
			fmt.Fprint(out, screen.Lines(set.Explain(req.Domain, d.Entries)))
		}
		fmt.Fprintf(out, "first request: %s\n\n", screen.Lines(resp.Statuses[i].String()))
	}
	fmt.Fprintf(out, "overall: %s\n", resp.Code())
	return nil
}

// read returns the request given by the flags, or nil for an HTTP request, which the rules
// describe.
func (f *explainFlags) read(set *rules.Set, stdin io.Reader) (req *rules.Request, err error) {
	ways := 0
	for _, given := range []bool{f.request != "", len(f.descriptors) > 0, f.target != "",
		f.line != ""} {
		if given {
			ways++
		}
	}
	switch {
	case ways != 1:
		return nil, errors.New("which request? Give one of --descriptor, --request, --http and --line")
	case f.target == "" && (len(f.headers) > 0 || f.http.Address != "" || f.http.User != ""):
		return nil, errors.New("--header, --address and --user need --http")
	case f.request != "":
		return f.readFile(stdin)
	case len(f.descriptors) == 0:
		return nil, nil
	}
	req = new(rules.Request)
	req.Domain, err = domainOf(set, f.domain)
	if err == nil {
		req.Descriptors, err = rulestest.ParseDescriptors(f.descriptors)
	}
	return req, err
}

// describe returns the HTTP request of the flags as the domain's rate_limits describe it, and
// prints how.
func (f *explainFlags) describe(out io.Writer, set *rules.Set) (*rules.Request, error) {
	domain, err := (&cli.Rules{Domain: f.domain}).Choose(set)
	if err != nil {
		return nil, err
	}
	in, err := f.httpRequest()
	if err != nil {
		return nil, err
	}
	trusted, err := cli.Prefixes("trust", f.lines.trust)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "%s %s from %s\n", screen.Lines(in.Method), screen.Lines(in.URL.RequestURI()),
		screen.Lines(cmp.Or(in.RemoteAddr, "no address")))
	req, lines := set.ExplainRequest(domain, in, httplimit.ClientIP(trusted))
	for i, line := range lines {
		fmt.Fprintf(out, "  rate_limits %d, %s\n", i+1, screen.Lines(line))
	}
	fmt.Fprintln(out)
	return req, nil
}

// httpRequest returns the HTTP request of --http or --line.
func (f *explainFlags) httpRequest() (*http.Request, error) {
	if f.line != "" {
		format, err := f.lines.logLines()
		if err != nil {
			return nil, err
		}
		return rulestest.Line(f.line, format)
	}
	f.http.Path, f.http.Headers = strings.TrimSpace(f.target), make(map[string]string)
	if method, path, ok := strings.Cut(f.http.Path, " "); ok {
		f.http.Method, f.http.Path = method, strings.TrimSpace(path)
	}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || name == "" {
			return nil, fmt.Errorf("--header %q: want 'NAME: VALUE'", h)
		}
		f.http.Headers[name] = strings.TrimSpace(value)
	}
	return f.http.Request()
}

func (f *explainFlags) readFile(stdin io.Reader) (*rules.Request, error) {
	var data []byte
	var err error
	if f.request == replay.Stdin {
		data, err = io.ReadAll(stdin)
	} else {
		data, err = os.ReadFile(f.request)
	}
	if err != nil {
		return nil, err
	}
	req, err := rulestest.ParseRequest(data)
	if err == nil {
		req.Domain = cmp.Or(f.domain, req.Domain)
	}
	return req, err
}
