package replay

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestArraysOfRecords: the lines of a log and the same records in an array, in any form of it, have
// the same callers.
func TestArraysOfRecords(t *testing.T) {
	one := `{"timestamp":"2026-03-25T14:12:00Z","httpRequest":{"remoteIp":"203.0.113.1","requestUrl":"/a]}\"{"}}`
	two := strings.Replace(one, ".1", ".2", 1)
	pretty := strings.ReplaceAll(strings.ReplaceAll(one, ",", ",\n  "), "{\"t", "{\n\t\"t")
	for name, text := range map[string]string{
		"lines":              one + "\n" + two,
		"gcloud":             "[\n  " + pretty + ",\n  " + two + "\n]\n",
		"on one line":        "[" + one + "," + two + "]",
		"two arrays":         "[" + one + "]\n[" + two + "]\n",
		"Azure":              `{"records":[` + one + "," + two + "]}",
		"Azure, one a line":  `{"records":[` + one + "]}\n" + `{ "records" : [` + two + "]}\n",
		"Azure, spread":      "{\n \"records\": [\n" + pretty + ",\n" + two + "\n ], \"meta\": [1]\n}",
		"CloudTrail's shape": `{"Records":[` + one + "," + two + "]}",
	} {
		got := ran(t, config(t, []string{writeText(t, "a.log", text)}, "1/1h"), name)
		assert.EqualValues(t, 2, got.Requests, name)
		assert.Equal(t, 2, got.Callers, name)
		assert.Zero(t, got.Unreadable.Count, name)
	}
}

// FuzzElements: the lines are the elements of an array, however it is read and laid out.
func FuzzElements(f *testing.F) {
	f.Add(`{"a":"]}\\\"","b":[{"c":1}]}`, "\n ", true)
	f.Add(`{}`, "", false)
	f.Fuzz(func(t *testing.T, record, space string, object bool) {
		var v map[string]any
		if json.Unmarshal([]byte(record), &v) != nil || v == nil || strings.Trim(space, " \n\t") != "" || len(space) > 50 {
			return
		}
		record = strings.TrimSpace(record)
		text := space + "[" + space + record + space + "," + space + record + space + "]"
		if object {
			text = `{"records":` + text + "}"
		}
		e := elementsOf(bufio.NewReader(iotest.OneByteReader(strings.NewReader(text))))
		require.NotNil(t, e)
		lines, err := io.ReadAll(iotest.OneByteReader(e))
		require.NoError(t, err)
		want := strings.NewReplacer("\n", "", "\r", "").Replace(record) + "\n"
		assert.Equal(t, want+want, string(lines))
	})
}
