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

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
)

// The admin addresses of the servers, unless they are given another.
const (
	serveAdmin = "127.0.0.1:6070"
	proxyAdmin = "127.0.0.1:8081"
)

// adminFlags name the server to call at its admin address, and the caller.
type adminFlags struct {
	at, token               string
	domain, descriptor, key string
}

// add adds the flags for a server whose admin address is commonly at.
func (f *adminFlags) add(cmd *cobra.Command, at string) {
	flags := cmd.Flags()
	flags.StringVar(&f.at, "admin", at,
		"the admin `address` of the server or the proxy, or its URL")
	flags.StringVar(&f.token, "admin-token-file", "",
		"the `file` with the admin token (default $WEIR_ADMIN_TOKEN)")
}

func (f *adminFlags) addDescriptor(cmd *cobra.Command, at string) {
	f.add(cmd, at)
	cmd.Flags().StringVarP(&f.descriptor, "descriptor", "d", "",
		"the descriptor of the caller, `KEY=VALUE,...`")
	cmd.Flags().StringVar(&f.domain, "domain", "", "the `domain` of the rules, if they have several")
}

func newRulesReset() *cobra.Command {
	var f adminFlags
	var all bool
	cmd := &cobra.Command{
		Use:   "reset -d KEY=VALUE,... [--all]",
		Short: "Reset the counter of a caller in a running server, or of many",
		Long: `Reset makes weir serve, or weir proxy with rules, forget what it has counted for a descriptor.
If several values share a counter, it resets the counter for all of them. The exit code is 1 if no
rule limits the descriptor.

With --all it resets every descriptor that begins with this one, and prints its progress. If the
last entry has no value, that stands for every value; without -d every descriptor of the domain is
reset. The server looks at every counter for that: in memory a million take a tenth of a second, on
Redis 2 s and a round trip for each that is reset. It goes on deciding meanwhile.`,
		Example: "  weir rules reset -d remote_address=192.0.2.7\n" +
			"  weir rules reset -d tenant=acme --all\n" +
			"  weir rules reset -d remote_address --all",
		Args: cli.None(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case all:
				return f.resetAll(cmd)
			case f.descriptor == "":
				return errors.New("want --descriptor, or --all")
			}
			return f.ask(cmd.Context(), http.MethodDelete, "/-/caller", new(any))
		},
	}
	f.addDescriptor(cmd, serveAdmin)
	cmd.Flags().BoolVar(&all, "all", false, "reset every descriptor that begins with this one")
	return cmd
}

// resetAll resets the descriptors that begin with f's, and prints how many that were, and meanwhile
// its progress.
func (f *adminFlags) resetAll(cmd *cobra.Command) error {
	return f.call(cmd.Context(), http.MethodDelete, "/-/callers", func(body io.Reader) error {
		for lines := json.NewDecoder(body); ; {
			var p cli.Progress
			switch err := lines.Decode(&p); {
			case err != nil:
				return fmt.Errorf("the server ended the reset early: %w", err)
			case p.Error != "":
				return fmt.Errorf("%d counters reset, and then: %s", p.Reset, screen.Printable(p.Error))
			case p.Done:
				fmt.Fprintf(cmd.OutOrStdout(), "%d counters reset\n", p.Reset)
				return nil
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%d counters looked at, %d reset\n", p.Seen, p.Reset)
		}
	})
}

func newRulesReload() *cobra.Command {
	var f adminFlags
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Make a running server load its rules again",
		Long: `Reload makes weir serve or weir proxy load its rules again. The server keeps its counts. If the
rules have a mistake, it keeps the old rules, and reload prints the mistakes and exits with 1.`,
		Args: cli.None(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var loaded struct {
				Version string
				Rules   int
			}
			if err := f.ask(cmd.Context(), http.MethodPost, "/-/reload", &loaded); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d rules, version %.12s\n", loaded.Rules,
				loaded.Version)
			return nil
		},
	}
	f.add(cmd, serveAdmin)
	return cmd
}

const (
	adminTimeout = 10 * time.Second // of a call to a server

	// maxAnswer bounds the bytes read of a response. A reload may return every mistake in the rules.
	maxAnswer = 4 << 20
)

// ask calls the admin address and decodes the JSON of the response into to.
func (f *adminFlags) ask(ctx context.Context, method, path string, to any) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	return f.call(ctx, method, path, func(body io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(body, maxAnswer))
		if err != nil {
			return err
		}
		return json.Unmarshal(text, to)
	})
}

// call sends a request to the admin address and has read read the response, unless that is an
// error.
func (f *adminFlags) call(ctx context.Context, method, path string,
	read func(body io.Reader) error,
) error {
	req, err := f.request(ctx, method, path)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return cli.Failure(fmt.Errorf("%w; give the admin address of a running server by --admin", err))
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusOK {
		return cli.Failure(read(resp.Body))
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil {
		err = errors.New(screen.Lines(strings.TrimSpace(string(text))))
	}
	return cli.Failure(err)
}

func (f *adminFlags) request(ctx context.Context, method, path string) (*http.Request, error) {
	token, err := cli.Secret("admin-token-file", f.token, "WEIR_ADMIN_TOKEN")
	if err != nil {
		return nil, err
	}
	base := f.at
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("--admin: want an address, such as 127.0.0.1:6070, not %q", f.at)
	}
	u.Path = path
	query := url.Values{}
	for name, value := range map[string]string{
		"domain": f.domain, "descriptor": f.descriptor, "key": f.key,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("Weir-Admin", "1")
	return req, nil
}

// checkHealth prints what a healthy proxy says, and fails otherwise.
func (f *adminFlags) checkHealth(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, healthWithin)
	defer cancel()
	r, err := f.request(ctx, http.MethodGet, "/-/healthz")
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("%w; which address has --admin of the proxy? Give it as --admin HOST:PORT", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	said := screen.Printable(strings.TrimSpace(string(text)))
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s answers %s: %s", r.URL, resp.Status, said)
	}
	_, err = fmt.Fprintln(out, said)
	return err
}
