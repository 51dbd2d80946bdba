package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
)

func newWhy() *cobra.Command {
	var f adminFlags
	cmd := &cobra.Command{
		Use:   "why {KEY... | -d KEY=VALUE,...}",
		Short: "Say why a running server denies a caller, or does not",
		Long: `Why asks weir proxy about a caller: whether the deny list has it, how much of each limit it has
used, when its next request passes, and what it was denied last. It counts nothing. KEY is an
address or another key, as the page and the log show it; key: stands before one that looks like an
address. Several are the parts of one key: those of --by ip+path are an address and a path.

Of rules, in weir serve or weir proxy, it takes a descriptor instead, as "weir rules explain" does,
and also says which rule limits it, and why. weir serve requires its token.`,
		Example: "  weir why 192.0.2.7\n" +
			"  weir why --admin " + serveAdmin + " -d path=/login,remote_address=192.0.2.7",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case (len(args) > 0) == (f.descriptor != ""):
				return errors.New("want either a KEY or --descriptor")
			case len(args) == 1:
				f.key = args[0]
			case len(args) > 1:
				f.key = "key:" + weir.JoinKey(args...)
			}
			var x cli.Explained
			if err := f.ask(cmd.Context(), http.MethodGet, "/-/explain", &x); err != nil {
				return err
			}
			return printWhy(cmd.OutOrStdout(), &x)
		},
	}
	f.addDescriptor(cmd, proxyAdmin)
	cli.Help(cmd)
	return cmd
}

// printWhy prints the verdict, and then what it is made of.
func printWhy(out io.Writer, x *cli.Explained) error {
	now := time.UnixMilli(x.Now)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s %s\n", screen.Printable(x.Name), screen.Printable(x.Says))
	for _, note := range x.Notes {
		fmt.Fprintln(w, screen.Printable(note))
	}
	if x.Steps != "" {
		fmt.Fprintf(w, "\n%s", screen.Lines(x.Steps))
	}
	if len(x.Limits) > 0 {
		fmt.Fprint(w, "\nLIMIT\tCOUNTED AS\tAT ONCE\tROUTE\tUSED\tLEFT\tPASSES\n")
	}
	for _, h := range x.Limits {
		left := fmt.Sprintf("%d\t%d", h.Used, h.Left)
		if h.Error != "" {
			left = "?\t?"
		}
		name := h.Name
		if !strings.Contains(name, h.Limit) {
			name += " " + h.Limit
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\n", screen.Printable(name),
			strings.ReplaceAll(h.Counting, "_", " "), h.AtOnce,
			screen.Printable(cmp.Or(h.Route, "-")), left, screen.Printable(h.When))
	}
	if x.Sent != nil && len(x.Sent.Admitted) > 0 {
		fmt.Fprint(w, "\nlately admitted:\n")
		for _, a := range x.Sent.Admitted {
			fmt.Fprintf(w, "%s\t%s\t%s\n", clock(time.UnixMilli(a.At), now), screen.Printable(a.Of),
				screen.Printable(a.Agent))
		}
	}
	if x.Denials > 0 {
		fmt.Fprintf(w, "\ndenials since the start: %d\n", x.Denials-x.Error)
	}
	for _, d := range x.Last {
		fmt.Fprintf(w, "%s\t%s\tby %s\n", clock(time.UnixMilli(d.At), now), screen.Printable(d.Of),
			screen.Printable(d.Limit))
	}
	return cli.Failure(w.Flush())
}

// clock returns a time of this day without its date.
func clock(t, now time.Time) string {
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}
