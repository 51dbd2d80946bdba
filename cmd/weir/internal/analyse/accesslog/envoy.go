package accesslog

import (
	"fmt"
	"regexp"
	"strings"
)

// envoyOperator matches a command operator of Envoy's format strings. No directive of Apache has so
// many capitals.
var envoyOperator = regexp.MustCompile(`%([A-Z][A-Z0-9_]{2,})(?:\(([^()]*)\))?(?::\d+)?%`)

// envoyOperators are nginx's variables for Envoy's operators, and for the request headers of REQ.
// Envoy logs the time of arrival.
var envoyOperators = map[string]string{
	"START_TIME": "$_start", "DURATION": "$request_time", "RESPONSE_CODE": "$status",
	"PATH":                                   "$request_uri",
	"DOWNSTREAM_REMOTE_ADDRESS":              "$remote_addr:$remote_port",
	"DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT": "$remote_addr",
	":METHOD":                                "$request_method", ":PATH": "$request_uri",
	"X-ENVOY-ORIGINAL-PATH": "$request_uri", "X-ENVOY-ORIGIN-PATH": "$request_uri",
}

// fromEnvoy returns a format string of Envoy with nginx's variables. The address of the TCP peer is
// only needed if the format lacks the one that Envoy takes for the client's.
func fromEnvoy(format string) (string, error) {
	if inner := strings.Trim(format, `"`); strings.Contains(inner, `\"`) { // as in a string of YAML
		format = inner
	}
	format = strings.TrimSpace(strings.NewReplacer(`\"`, `"`, `\n`, "", "\n", " ").Replace(format))
	if !strings.Contains(format, "%DOWNSTREAM_REMOTE_") {
		format = strings.ReplaceAll(format, "%DOWNSTREAM_DIRECT_", "%DOWNSTREAM_")
	}
	var err error
	format = envoyOperator.ReplaceAllStringFunc(format, func(op string) string {
		m := envoyOperator.FindStringSubmatch(op)
		name, argument := m[1], m[2]
		if name == "START_TIME" && !readsTime(argument) {
			err = fmt.Errorf("log format: a time as %s cannot be read; log %%START_TIME%%", op)
		}
		names := []string{name}
		isHeader := name == "REQ" || name == "REQ_WITHOUT_QUERY"
		if isHeader {
			names = strings.Split(strings.ToUpper(argument), "?") // the second stands in for the first
		}
		for _, name := range names {
			if v, ok := envoyOperators[name]; ok {
				return v
			}
		}
		if isHeader && names[0] != "" && names[0][0] != ':' {
			return headerVariable(names[0])
		}
		return "$_"
	})
	return format, err
}

// sampleTime writes one instant by the specifiers that Envoy takes over from strftime.
var sampleTime = strings.NewReplacer("%Y", "2006", "%m", "01", "%d", "02", "%b", "Jan",
	"%F", "2006-01-02", "%H", "15", "%M", "04", "%S", "05", "%T", "15:04:05", "%z", "+0000",
	"%Ez", "+00:00", "%Z", "UTC", "%s", "1136214245", "%3f", "000", "%6f", "000000",
	"%9f", "000000000", "%f", "000000000")

// readsTime reports whether a time that Envoy writes by a format can be parsed. An empty format is
// RFC 3339.
func readsTime(format string) bool {
	_, _, ok := new(clock).instant(value{text: []byte(sampleTime.Replace(format)), str: true})
	return ok || format == ""
}
