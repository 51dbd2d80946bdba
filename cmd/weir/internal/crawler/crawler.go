// Package crawler recognizes the crawlers of search engines, of archives and of models, the
// fetchers of link previews, and monitors, by the names that they have in their user agents.
package crawler

import (
	"bytes"
	"slices"
	"strings"
)

// names are in the user agents of crawlers, and in those of no browser, as the crawlers' operators
// document them.
var names = []string{
	// search engines
	"Googlebot", "GoogleOther", "Google-InspectionTool", "AdsBot-Google", "Mediapartners-Google",
	"FeedFetcher-Google", "Storebot-Google", "bingbot", "BingPreview", "msnbot", "adidxbot",
	"DuckDuckBot", "Baiduspider", "Yandex", "Applebot", "Slurp", "Sogou", "PetalBot", "SeznamBot",
	"Qwantbot", "coccocbot", "Amazonbot", "Yeti/", "Exabot", "Qwantify", "MojeekBot",
	// models and their searches
	"GPTBot", "OAI-SearchBot", "ChatGPT-User", "ClaudeBot", "Claude-User", "Claude-SearchBot",
	"PerplexityBot", "Perplexity-User", "CCBot", "Bytespider", "meta-externalagent",
	"DuckAssistBot", "MistralAI-User", "cohere-ai",
	// archives
	"archive.org_bot", "ia_archiver", "heritrix",
	// link previews
	"facebookexternalhit", "facebookcatalog", "Twitterbot", "LinkedInBot", "Pinterestbot", "Slackbot",
	"Discordbot", "TelegramBot", "WhatsApp", "SkypeUriPreview", "redditbot",
	// indexes of links
	"AhrefsBot", "SemrushBot", "MJ12bot", "DotBot", "rogerbot", "DataForSeoBot", "BLEXBot", "SEOkicks",
	"serpstatbot", "Screaming Frog",
	// monitors
	"UptimeRobot", "Pingdom", "StatusCake", "Site24x7", "GTmetrix", "Better Uptime Bot",
}

// Is reports whether a user agent, as logged, is that of a known crawler.
func Is(agent string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(agent, name) })
}

// Memo remembers the user agents that it was asked about, which are few. The zero value is empty.
type Memo struct{ known map[string]bool }

// maxKnown bounds a Memo: clients choose their user agents.
const maxKnown = 4096

// Is is as the function Is.
func (m *Memo) Is(agent []byte) bool {
	is, ok := m.known[string(agent)]
	if !ok {
		if is = Is(string(agent)); m.known == nil || len(m.known) == maxKnown {
			m.known = make(map[string]bool)
		}
		m.known[string(agent)] = is
	}
	return is
}

// shortest is less than the length of every browser's user agent.
const shortest = 40

// Maybe reports whether the end of a line in the combined format may be that of a known crawler.
// The others are nearly all lines: their last field is over 40 bytes long and ends in a digit, as
// the user agent of a browser, and they have no plus sign, which most crawlers have before their
// address.
func Maybe(end []byte) bool {
	n := len(end)
	if n < shortest || end[n-1] != '"' || end[n-2] < '0' || end[n-2] > '9' {
		return n > 0
	}
	return bytes.IndexByte(end[n-shortest:n-1], '"') >= 0 || bytes.IndexByte(end, '+') >= 0
}
