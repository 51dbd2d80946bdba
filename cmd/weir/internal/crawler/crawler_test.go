package crawler

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// documented are user agents from the documentation of the crawlers' operators.
var documented = []string{
	"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; Googlebot/2.1; " +
		"+http://www.google.com/bot.html) Chrome/140.0.0.0 Safari/537.36",
	"Mozilla/5.0 (Linux; Android 6.0.1; Nexus 5X Build/MMB29P) AppleWebKit/537.36 (KHTML, like Gecko) " +
		"Chrome/140.0.0.0 Mobile Safari/537.36 (compatible; Googlebot/2.1; " +
		"+http://www.google.com/bot.html)",
	"Googlebot-Image/1.0",
	"Googlebot/2.1 (+http://www.google.com/bot.html)",
	"AdsBot-Google (+http://www.google.com/adsbot.html)",
	"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; bingbot/2.0; " +
		"+http://www.bing.com/bingbot.htm) Chrome/116.0.1938.76 Safari/537.36",
	"Mozilla/5.0 (compatible; Yahoo! Slurp; http://help.yahoo.com/help/us/ysearch/slurp)",
	"Mozilla/5.0 (compatible; YandexBot/3.0; +http://yandex.com/bots)",
	"Mozilla/5.0 (compatible; Baiduspider/2.0; +http://www.baidu.com/search/spider.html)",
	"DuckDuckBot/1.1; (+http://duckduckgo.com/duckduckbot.html)",
	"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) " +
		"Version/17.4 Safari/605.1.15 (Applebot/0.1; +http://www.apple.com/go/applebot)",
	"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; " +
		"+https://openai.com/gptbot)",
	"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; ClaudeBot/1.0; " +
		"+claudebot@anthropic.com)",
	"CCBot/2.0 (https://commoncrawl.org/faq/)",
	"Mozilla/5.0 (Linux; Android 5.0) AppleWebKit/537.36 (KHTML, like Gecko) Mobile Safari/537.36 " +
		"(compatible; Bytespider; spider-feedback@bytedance.com)",
	"facebookexternalhit/1.1",
	"Twitterbot/1.0",
	"WhatsApp/2.23.20.0",
	"LinkedInBot/1.0 (compatible; Mozilla/5.0; Apache-HttpClient +http://www.linkedin.com)",
	"Mozilla/5.0 (compatible; AhrefsBot/7.0; +http://ahrefs.com/robot/)",
	"Mozilla/5.0 (compatible; MJ12bot/v1.4.8; http://mj12bot.com/)",
	"Mozilla/5.0+(compatible; UptimeRobot/2.0; http://www.uptimerobot.com/)",
}

func TestDocumentedCrawlers(t *testing.T) {
	for _, agent := range documented {
		assert.True(t, Is(agent), agent)
		for _, end := range []string{`123 "-" "` + agent + `"`,
			`123 "https://example.com/a" "` + agent + `" "-"`} {
			assert.True(t, Maybe([]byte(end)), end)
		}
	}
}

func TestBrowsers(t *testing.T) {
	for _, agent := range []string{
		"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) " +
			"Chrome/140.0.0.0 Safari/537.36",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) " +
			"Version/18.0 Mobile/15E148 Safari/604.1",
	} {
		assert.False(t, Is(agent), agent)
		assert.False(t, Maybe([]byte(`1 "-" "`+agent+`"`)), "it costs two looks at the line: %s", agent)
	}
	for _, agent := range []string{"", "-", "curl/8.5.0", "python-requests/2.32.3"} {
		assert.False(t, Is(agent), agent)
	}
	assert.False(t, Maybe(nil))
}
