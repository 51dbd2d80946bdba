package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirgo/weir/cmd/weir/internal/live"
	"github.com/weirgo/weir/cmd/weir/internal/report"
)

// adminFlags name the server to call at its admin address, and the caller.
type adminFlags struct {
	at, token          string
	domain, descriptor string
}

func (f *adminFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.at, "admin", "127.0.0.1:6070",
		"the admin `address` of the server or the proxy, or its URL")
	flags.StringVar(&f.token, "admin-token-file", "",
		"the `file` with the admin token (default $WEIR_ADMIN_TOKEN)")
}

func (f *adminFlags) addCaller(cmd *cobra.Command) {
	f.add(cmd)
	cmd.Flags().StringVarP(&f.descriptor, "descriptor", "d", "",
		"the descriptor of the caller, `KEY=VALUE,...`")
	cmd.Flags().StringVar(&f.domain, "domain", "", "the `domain` of the rules, if they have several")
	if err := cmd.MarkFlagRequired("descriptor"); err != nil {
		panic(err) // the flag is defined above
	}
}

func newRulesInspect() *cobra.Command {
	var f adminFlags
	cmd := &cobra.Command{
		Use:   "inspect -d KEY=VALUE,...",
		Short: "Print how much of its limit a caller has left, from a running server",
		Long: `Inspect asks weir serve, or weir proxy with rules, how much is left of a descriptor's limit. It
takes nothing from the limit. Write the descriptor as the admin page and "weir rules explain" do.`,
		Example: "  weir rules inspect -d remote_address=192.0.2.7\n" +
			"  weir rules inspect --admin 127.0.0.1:8081 -d path=/login,remote_address=192.0.2.7",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var c live.Caller
			if err := f.ask(cmd.Context(), http.MethodGet, "/-/caller", &c); err != nil {
				return err
			}
			printCaller(cmd.OutOrStdout(), c)
			return nil
		},
	}
	f.addCaller(cmd)
	return cmd
}

// printCaller prints the state of a caller on one line.
func printCaller(w io.Writer, c live.Caller) {
	line := c.Code + ": " + c.Reason
	if c.Rule != "" {
		line += fmt.Sprintf(", rule %s, %s", c.Rule, c.Limit)
	}
	if c.ResetSeconds > 0 {
		line += fmt.Sprintf(", %d left, reset in %ds", c.Remaining, c.ResetSeconds)
	}
	fmt.Fprintln(w, report.Printable(line))
}

func newRulesReset() *cobra.Command {
	var f adminFlags
	cmd := &cobra.Command{
		Use:   "reset -d KEY=VALUE,...",
		Short: "Reset the counter of a caller in a running server",
		Long: `Reset makes weir serve, or weir proxy with rules, forget what it has counted for a descriptor.
If several values share a counter, it resets the counter for all of them. The exit code is 1 if no
rule limits the descriptor.`,
		Example: "  weir rules reset -d remote_address=192.0.2.7",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.ask(cmd.Context(), http.MethodDelete, "/-/caller", new(any))
		},
	}
	f.addCaller(cmd)
	return cmd
}

func newRulesReload() *cobra.Command {
	var f adminFlags
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Make a running server load its rules again",
		Long: `Reload makes weir serve or weir proxy load its rules again. The server keeps its counts. If the
rules have a mistake, it keeps the old rules, and reload prints the mistakes and exits with 1.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var loaded struct {
				Version string
				Rules   int
			}
			if err := f.ask(cmd.Context(), http.MethodPost, "/-/reload", &loaded); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d rules, version %s\n", loaded.Rules, live.Short(loaded.Version))
			return nil
		},
	}
	f.add(cmd)
	return cmd
}

// adminTimeout bounds the time of a call to a server.
const adminTimeout = 10 * time.Second

// ask sends a request to the admin address and decodes the JSON of the response into to.
func (f *adminFlags) ask(ctx context.Context, method, path string, to any) error {
	token, err := secret("admin-token-file", f.token, "WEIR_ADMIN_TOKEN")
	if err != nil {
		return err
	}
	base := f.at
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return fmt.Errorf("admin: want an address, such as 127.0.0.1:6070, not %q", f.at)
	}
	u.Path = path
	if f.descriptor != "" {
		u.RawQuery = url.Values{"domain": {f.domain}, "descriptor": {f.descriptor}}.Encode()
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("Weir-Admin", "1")
	return failed(send(req, to))
}

// failed returns err as a failure, or nil.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return failure{err}
}

// maxAnswer bounds the bytes read of a response. A reload may return every mistake in the rules.
const maxAnswer = 4 << 20

func send(req *http.Request, to any) error {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%w; give the admin address of a running server by --admin", err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return errors.New(printableLines(strings.TrimSpace(string(text))))
	}
	return json.Unmarshal(text, to)
}

// printableLines applies report.Printable to each line.
func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = report.Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}
