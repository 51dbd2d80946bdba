package accesslog

import (
	"regexp"
	"slices"
	"strconv"
)

// rfc3339 matches a time as containers and collectors write it.
const rfc3339 = `\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?`

// wrappers match the words that containers and collectors put in front of a line.
var wrappers = []*regexp.Regexp{
	// Docker Compose: web-1  | LINE
	regexp.MustCompile(`^[\w.@-]{1,128} +\| `),
	// Kubernetes CRI: 2026-11-23T05:38:03.1Z stdout F LINE. Parts of a long line (P) are no lines.
	regexp.MustCompile(`^` + rfc3339 + ` std(?:out|err) F `),
	// Syslog, RFC 5424: <190>1 2026-11-23T05:38:03Z HOST APP PROCESS MESSAGE [DATA] LINE
	regexp.MustCompile(`^<\d{1,3}>1 \S+ \S+ \S+ \S+ \S+ ` +
		`(?:-|(?:\[(?:[^\]\\"]|\\.|"(?:[^"\\]|\\.)*")*\])+) (?:\x{feff})?`),
	// Heroku's drains leave out the data: <158>1 2026-11-23T05:38:03Z host APP PROCESS - LINE
	regexp.MustCompile(`^<\d{1,3}>1 \S+ \S+ \S+ \S+ - `),
	// Syslog, RFC 3164, and journalctl: <190>Nov 23 05:38:03 HOST TAG[PID]: LINE
	regexp.MustCompile(`^(?:<\d{1,3}>)?(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|` + rfc3339 +
		`) (?:[^\s"]*[^\s":] )?[^\s":\[]+(?:\[[^\s"\]]*\])?: `),
	// kubectl logs --prefix: [pod/NAME/CONTAINER] LINE
	regexp.MustCompile(`^\[pod/[^\]\s]+\] `),
	// docker logs --timestamps: 2026-11-23T05:38:03.1Z LINE
	regexp.MustCompile(`^` + rfc3339 + ` `),
}

// console matches a line of Caddy's access log in the format console, up to the JSON: the time, the
// level and the logger stand before it, with tabs between them.
var console = regexp.MustCompile(`^(\d[\d/:.,TZe+-]*(?: [\d:.]+)?)\t[^\t]*\thttp\.log\.access[^\t]*\t[^\t]*\t\{`)

// unwrapConsole returns a line of Caddy's console format as one of its format json, or nil.
func unwrapConsole(line []byte) []byte {
	m := console.FindSubmatchIndex(line)
	if m == nil {
		return nil
	}
	ts := string(line[m[2]:m[3]])
	if _, err := strconv.ParseFloat(ts, 64); err != nil {
		ts = `"` + ts + `"`
	}
	return slices.Concat([]byte(`{"ts":`+ts+`,`), line[m[1]:])
}

// wrapped finds the line in the JSON of Docker and of journalctl.
var wrapped = must(newTree("line=log,line=MESSAGE", ""))
