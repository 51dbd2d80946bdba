package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/weirgo/weir/cmd/weir/internal/replay"
	"github.com/weirgo/weir/cmd/weir/internal/serve"
	"github.com/weirgo/weir/rules"
)

// explainFlags are the flags of weir rules explain.
type explainFlags struct {
	loader      rules.Loader
	domain      string
	descriptors []string
	request     string
}

func newRulesExplain() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain PATH... --descriptor KEY=VALUE,... | --request FILE",
		Short: "Print which rule limits a request, and why",
		Long: `Explain looks up each descriptor of a request in the rules. It prints which descriptor of the
file is chosen at each step, and why, and then what the rules decide on the request if it is the
first.

A descriptor is written KEY=VALUE,KEY=VALUE; keys and values may be quoted as in Go. A request is
JSON, as Envoy's service accepts it at /json:

  {"domain": "edge", "descriptors": [{"entries": [{"key": "plan", "value": "free"}]}], "hitsAddend": 1}`,
		Example: "  weir rules explain limits.yaml --descriptor plan=free,user=ann\n" +
			"  weir rules explain limits.yaml --request request.json",
		Args: cobra.MinimumNArgs(1),
		RunE: f.run,
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVarP(&f.descriptors, "descriptor", "d", nil,
		"a descriptor, `KEY=VALUE,...` (repeatable)")
	flags.StringVar(&f.domain, "domain", "", "the domain of the descriptors (default the only one)")
	flags.StringVar(&f.request, "request", "", "a JSON `file` with a request, or - for the standard input")
	mergeFlag(cmd, &f.loader)
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
	engine, err := rules.New(set, rules.Config{})
	if err != nil {
		return failure{err}
	}
	defer engine.Close()
	resp, err := engine.Decide(cmd.Context(), req)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	for i, d := range req.Descriptors {
		if d.Override != nil {
			fmt.Fprintf(out, "domain %s\nthe request overrides the rules\n", printable(req.Domain))
		} else {
			fmt.Fprint(out, printable(set.Explain(req.Domain, d.Entries).String()))
		}
		fmt.Fprintf(out, "first request: %s\n\n", printable(resp.Statuses[i].String()))
	}
	fmt.Fprintf(out, "overall: %v\n", resp.Code)
	return nil
}

// read returns the request given by the flags.
func (f *explainFlags) read(set *rules.Set, stdin io.Reader) (*rules.Request, error) {
	switch {
	case f.request != "" && len(f.descriptors) > 0:
		return nil, errors.New("give --descriptor or --request, not both")
	case f.request == "" && len(f.descriptors) == 0:
		return nil, errors.New("which request? Give --descriptor or --request")
	case f.request != "":
		return f.readFile(stdin)
	}
	domain, err := domainOf(set, f.domain)
	if err != nil {
		return nil, err
	}
	req := &rules.Request{Domain: domain}
	for _, text := range f.descriptors {
		entries, err := rules.ParseEntries(text)
		if err != nil {
			return nil, err
		}
		req.Descriptors = append(req.Descriptors, rules.Descriptor{Entries: entries})
	}
	return req, nil
}

func (f *explainFlags) readFile(stdin io.Reader) (*rules.Request, error) {
	data, err := readInput(f.request, stdin)
	if err != nil {
		return nil, err
	}
	req, err := serve.ParseRequest(data)
	if err != nil {
		return nil, err
	}
	if f.domain != "" {
		req.Domain = f.domain
	}
	return req, nil
}

// readInput reads a file or the standard input.
func readInput(name string, stdin io.Reader) ([]byte, error) {
	if name == replay.Stdin {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(name)
}
