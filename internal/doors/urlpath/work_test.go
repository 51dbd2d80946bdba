package urlpath

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// honest are paths of clients that have no reason to hide what they ask for.
var honest = []string{
	"/a/b", "/users/42%2Fx/reset", "/%6Cogin", "/a%5Cb", "/a%252Fb", "/bucket//a%2Fb%20c", "/100%25/x",
	"/login;jsessionid=1;b=%3B", "/projects/g%2Fp/repository/files/a%2Fb%2Ec/raw", "/a/./b/../c",
	"/resize/https%3A%2F%2Fexample.com%2Fa%20b%2Fc%3Fx%3D1", "/odata/Items('a%2Fb')/x",
	"/resize/https%3A%2F%2Fexample.com%2Fa%2520b%252Fc%253Fx%253D1%2526", "/%7Euser//x;y=z",
	"/proxy/https://example.com/a%20b", "/x;a=b;c=%2F/d%20e", "/matrix;x=1;y=2/sub;z=3//q",
	"/resize/https%3A%2F%2Fexample.com%2F" + strings.Repeat("a%20b%2Fc", 200),
	"/" + strings.Repeat("%E6%97%A5%E6%9C%AC", 400),
}

func TestHonestPathsAreFarFromTheBounds(t *testing.T) {
	for _, path := range honest {
		all, err := Readings(nil, path)
		require.NoError(t, err, path)
		var w work
		_, err = w.readings(nil, path, work{maxTexts - 1, maxBytes})
		assert.NoError(t, err, path)
		if len(path) < 60 {
			assert.LessOrEqual(t, len(all), 8, path)
			assert.Less(t, w.bytes, maxBytes/20, path)
		}
	}
}

// hostile are units of paths that cost much.
var hostile = []string{
	"//..;/%2e/a", "%25", "/%2e%41", "//a;/A..;", "%253b/.././%c3%a9/../%41", "/%25.\\", "|", "\\.", "a/../",
	"/%2e%2e/..;//..;/a%3b", ";%2f", "/.", "%ff", "%2525", "/%5c%255C%2F%252f.;x\\..//", "/a", "..%2f", "//",
}

// FuzzWork searches for the path whose reading takes the most work: a start, a unit that is
// repeated, and an end. The work is counted in bytes, so that the result is the same on each run.
func FuzzWork(f *testing.F) {
	for _, unit := range hostile {
		for _, n := range []uint16{1, 3, 10, 100, 2000} {
			f.Add("/%2e%2e/..;", unit, n, "/%5c")
			f.Add("", unit, n, "")
		}
	}
	f.Fuzz(func(t *testing.T, start, unit string, n uint16, end string) {
		path := start + strings.Repeat(unit, min(int(n), MaxLen/max(1, len(unit)))) + end
		path = path[:min(len(path), MaxLen)]
		if plain(path) {
			return
		}
		var w work
		all, err := w.readings(nil, path, work{maxTexts, maxBytes})
		require.Positive(t, covers(w))
		// each exceeds its bound by what ended the work, of which a byte may be escaped
		require.LessOrEqual(t, w.texts, maxTexts+1)
		require.LessOrEqual(t, w.bytes, maxBytes+3*(MaxLen+1))
		size := 0
		for _, r := range all {
			size += len(r.Path)
		}
		require.LessOrEqual(t, size, maxBytes)
		require.LessOrEqual(t, len(all), 2*maxTexts)
		if err != nil {
			require.ErrorIs(t, err, ErrReadings)
			require.Empty(t, all)
		}
		require.LessOrEqual(t, len(Canonical(path)), 5*(len(path)+1)) // small letters may be longer
	})
}

// covers runs other code for more work, so that a fuzzer that looks for new code finds it.
func covers(w work) int {
	sixteenths := 0
	switch w.bytes * 16 / maxBytes {
	case 0, 1:
		sixteenths = 1
	case 2, 3:
		sixteenths = 3
	case 4, 5:
		sixteenths = 5
	case 6, 7:
		sixteenths = 7
	case 8, 9:
		sixteenths = 9
	case 10, 11:
		sixteenths = 11
	case 12, 13:
		sixteenths = 13
	case 14, 15:
		sixteenths = 15
	}
	texts := 0
	for range w.texts {
		texts++
	}
	return sixteenths + texts
}

// BenchmarkReadings compares paths of an attacker with a plain one. They are the costliest that
// FuzzWork and a search by time found.
func BenchmarkReadings(b *testing.B) {
	paths := map[string]string{"plain": "/users/8f14e45f/orders/17"}
	for _, unit := range hostile {
		paths["hostile="+unit] = (`/%252f%2e/` + strings.Repeat(unit, MaxLen))[:MaxLen]
	}
	for name, path := range paths {
		b.Run(strings.ReplaceAll(name, "/", "_"), func(b *testing.B) {
			var buf [2 * maxTexts]Reading
			b.ReportAllocs()
			for b.Loop() {
				_, _ = Readings(buf[:0], path)
			}
		})
	}
}
