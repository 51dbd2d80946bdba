package proxy

import (
	"bytes"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
)

func TestTheLogOfATerminal(t *testing.T) {
	for _, color := range []bool{false, true} {
		var out bytes.Buffer
		cfg := config(t, "2/1d")
		cfg.Access, cfg.LogKey = slog.New(NewTerminal(&out, screen.Terminal{Colors: color})), color
		s := serve(t, cfg)
		for range 2 {
			assert.Equal(t, 200, status(t, "GET", s.front.URL+"/a%1bb?secret=1"))
		}
		assert.Equal(t, 429, status(t, "POST", s.front.URL+"/a"))
		s.front.Close() // and waits for the lines
		lines := strings.Split(out.String(), "\n")
		assert.Len(t, lines, 4)
		want := []string{`^\d\d:\d\d:\d\d 200 GET  /a\\x1bb  127.0.0.1 \d+\.\d ms$`,
			`^\d\d:\d\d:\d\d 429 POST /a  127.0.0.1 \d+\.\d ms  denied by 2/1d$`}
		if color {
			want = []string{`^\d\d:\d\d:\d\d \x1b\[32m200\x1b\[0m GET  /a\\x1bb  127.0.0.1 \d+\.\d ms  key 127.0.0.1$`,
				`^\d\d:\d\d:\d\d \x1b\[31m429\x1b\[0m POST /a  127.0.0.1 \d+\.\d ms  \x1b\[31mdenied\x1b\[0m by 2/1d  key 127.0.0.1$`}
		}
		assert.Regexp(t, regexp.MustCompile(want[0]), lines[0])
		assert.Regexp(t, regexp.MustCompile(want[1]), lines[2])
		assert.Regexp(t, `^3 requests in \d+s: 2 admitted, 1 denied, 0 others; denied most: 127.0.0.1, 1 times$`, s.Sum())
	}
}
