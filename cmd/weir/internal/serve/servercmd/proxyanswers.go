package servercmd

import (
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/serve/proxy"
	"github.com/weirgo/weir/httplimit"
)

// answerFlags are the flags of weir proxy for its answers to denials.
type answerFlags struct {
	headers, deniedPage string
	mochiweb            bool
}

func (f *answerFlags) add(cmd *cobra.Command, cfg *proxy.Config) {
	flags := cmd.Flags()
	flags.StringVar(&f.headers, "headers", "draft",
		"response fields: draft (RateLimit), legacy (X-RateLimit), original (Rate-Limiting) or none")
	flags.IntVar(&cfg.Guard.DeniedStatus, "status", http.StatusTooManyRequests,
		"the status of a denial")
	flags.BoolVar(&f.mochiweb, "mochiweb", false,
		"respond like the Erlang original: 413, a page in HTML and no fields")
	flags.StringVar(&f.deniedPage, "denied-page", "", "answer with the page in this HTML `file`")
	flags.DurationVar(&cfg.Guard.Jitter, "jitter", 0,
		"add up to this to Retry-After, so that clients denied together do not retry together")
	flags.StringSliceVar(&cfg.Guard.CORS.Origins, "cors-origin", nil,
		"`origins` whose scripts may read denials, or *")
	flags.BoolVar(&cfg.Guard.CORS.Credentials, "cors-credentials", false,
		"also on requests with cookies")
	flags.BoolVar(&cfg.Guard.CountPreflights, "count-preflights", false,
		"also count CORS preflight requests")
	cli.Section(cmd, "Answers to denials")
}

// set sets the answers; given reports whether a flag was set.
func (f *answerFlags) set(cfg *proxy.Config, given func(string) bool) (err error) {
	if err := f.check(&cfg.Guard); err != nil {
		return err
	}
	guard := &cfg.Guard
	guard.LogKeys = cfg.LogKey
	guard.Headers = httplimit.HeaderStyle(slices.Index(proxy.HeaderStyles, f.headers))
	if f.mochiweb {
		original := httplimit.Mochiweb()
		guard.Respond = original.Respond
		if !given("headers") {
			guard.Headers = original.Headers
		}
		if !given("status") {
			guard.DeniedStatus = original.DeniedStatus
		}
	}
	if f.deniedPage != "" {
		cfg.DeniedPage, err = proxy.NewDeniedPage(f.deniedPage)
		if err != nil {
			return &cli.FlagError{Flags: []string{"denied-page"}, Err: err}
		}
		guard.Respond = cfg.DeniedPage.Respond
	}
	return nil
}

func (f *answerFlags) check(guard *httplimit.Config) error {
	switch {
	case guard.DeniedStatus < 400 || guard.DeniedStatus > 599:
		return cli.Wrong("status", "must be from 400 to 599, not %d", guard.DeniedStatus)
	case f.mochiweb && f.deniedPage != "":
		return cli.Excluded("mochiweb", "denied-page")
	case guard.CORS.Credentials && slices.Contains(guard.CORS.Origins, "*"):
		return cli.Wrong("cors-credentials", "needs named origins: browsers send no cookies to *")
	}
	return oneOf("headers", f.headers, proxy.HeaderStyles...)
}
