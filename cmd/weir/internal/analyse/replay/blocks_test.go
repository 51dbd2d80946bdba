package replay

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/analyse/accesslog"
)

func TestEmptyFilesAreNoted(t *testing.T) {
	good := write(t, "good.log", traffic(1, 10), request.common)
	empty, packed := writeText(t, "empty.log", ""), writeText(t, "empty.log.gz", "")
	got := ran(t, config(t, []string{empty, good, packed}, "1/1m"))
	assert.Equal(t, []string{empty, packed}, got.Empty)
	assert.EqualValues(t, 10, got.Requests)
}

func TestByteOrderMarksAreSkipped(t *testing.T) {
	requests := traffic(1, 10)
	for i := range requests {
		requests[i].ip = "10.0.0.1"
	}
	for _, render := range []func(request) string{request.common, request.caddy} {
		for _, name := range []string{"a.log", "a.log.gz"} {
			text := "\xef\xbb\xbf"
			for _, r := range requests {
				text += render(r) + "\n"
			}
			got := ran(t, config(t, []string{writeText(t, name, text)}, "1/1m"))
			assert.Equal(t, 1, got.Callers)
			assert.Zero(t, got.Unreadable.Count)
		}
	}
}

func TestCompressedFilesAreReadOrNamed(t *testing.T) {
	text, err := base64.StdEncoding.DecodeString(`QlpoOTFBWSZTWZ23biYAACpfgEAQUAvx8ALBRAoAAIEAIABoFVRpoGjQBoAqqaaNNAGgBgxeK4T0koikmivZDRBcgsUfI1VbLUHF` +
		`atRGqKM0JoSYJKOFj1ckuXrV6Jy7bJpqO0Hix49fPxdyRThQkJ23biY=`)
	require.NoError(t, err)
	got := ran(t, config(t, []string{writeText(t, "access.log.1", string(text))}, "1/1m"))
	assert.EqualValues(t, 2, got.Requests, "bzip2")
	_, err = Run(config(t, []string{writeText(t, "cut.log", string(text[:len(text)-9]))}, "1/1m"))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "a truncated bzip2 file is an error")

	for name, first := range map[string]string{"xz": "\xfd7zXZ\x00\x00\x04",
		"lz4": "\x04\x22\x4d\x18\x64\x40", "lzip": "LZIP\x01", "7z": "7z\xbc\xaf\x27\x1c\x00",
		"zip": "PK\x03\x04\x14", "compress": "\x1f\x9d\x90"} {
		_, err := Run(config(t, []string{writeText(t, "packed.log", first+strings.Repeat("x\n", 99))}, "1/1m"))
		require.ErrorContains(t, err, "packed.log: it is compressed ("+name+")")
		assert.True(t, errors.As(err, new(*InputError)), "the user can correct it")
	}
}

func TestUnreadableLinesAreCountedAndShown(t *testing.T) {
	good := traffic(1, 3)
	text := "garbage 1\n" + good[0].common() + "\n\n" + good[1].common() + "\r\n" +
		strings.Repeat("x", maxLine+10) + "\n" +
		good[2].common() + "\n" + "g\x1b[2J\n" + "{\n" + "garbage 6\n" + "garbage 7"
	got := ran(t, config(t, []string{writeText(t, "a.log", text)}, "1/1h"))
	assert.EqualValues(t, 3, got.Requests)
	assert.EqualValues(t, 7, got.Unreadable.Count)
	require.Len(t, got.Unreadable.Examples, maxExamples)
	var lines []uint64
	for _, e := range got.Unreadable.Examples {
		lines = append(lines, e.Line)
		assert.LessOrEqual(t, len(e.Text), maxExcerpt)
	}
	assert.Equal(t, []uint64{1, 3, 5, 7, 8}, lines)
	assert.Equal(t, "the line is over 256 KiB", got.Unreadable.Examples[2].Reason)
	assert.Equal(t, []Reason{{accesslog.ErrFormat.Error(), 4}, {accesslog.ErrEmpty.Error(), 1},
		{errTooLong.Error(), 1}, {accesslog.ErrJSON.Error(), 1}}, got.Unreadable.Reasons)
}

// TestOneExampleOfEachReason: a reason that is met after many lines of another has an example too,
// in whichever block of lines it is.
func TestOneExampleOfEachReason(t *testing.T) {
	good := traffic(1, 400)
	var b strings.Builder
	for i, r := range good {
		b.WriteString(strings.Repeat("garbage\n", 100) + r.common() + "\n")
		switch i {
		case 150:
			b.WriteString("{\n")
		case 390:
			b.WriteString(strings.Replace(r.common(), "[", "[x", 1) + "\n" + `{"level":"info"}` + "\n")
		}
	}
	b.WriteString("\n")
	got := ran(t, config(t, []string{writeText(t, "a.log", b.String())}, "1/1h"))
	total := uint64(0)
	for _, r := range got.Unreadable.Reasons {
		total += r.Count
		assert.True(t, slices.ContainsFunc(got.Unreadable.Examples, func(e Example) bool {
			return e.Reason == r.Reason
		}), "no example of %s", r.Reason)
	}
	assert.Equal(t, got.Unreadable.Count, total)
	assert.Len(t, got.Unreadable.Reasons, 4)
	assert.Len(t, got.Unreadable.Examples, maxExamples)
	assert.Equal(t, "a.log:1", fmt.Sprintf("%s:%d", filepath.Base(got.Unreadable.Examples[0].File),
		got.Unreadable.Examples[0].Line))
}

func TestBadInput(t *testing.T) {
	good := filepath.Join(t.TempDir(), "good.log")
	for name, tc := range map[string]struct {
		files []string
		by    By
		want  string
	}{
		"a file that is not there": {[]string{good + ".not"}, ByIP, "no such file"},
		"a directory":              {[]string{t.TempDir()}, ByIP, "is a directory"},
		"no readable line": {[]string{writeText(t, "prose.log", "a\nb\n")}, ByIP,
			"none of its 2 lines"},
		"gzip in its first bytes only": {[]string{writeText(t, "z.log", "\x1f\x8bxx")}, ByIP, "z.log"},
		"no agent": {[]string{writeText(t, "a.log",
			`192.0.2.1 - - [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 1`)}, ByAgent, "the only request has no agent"},
		"no address": {[]string{writeText(t, "a.log",
			strings.Repeat(`{"ts":1,"request":{"remote_ip":"a"}}`+"\n", 2))}, ByIPPath, "requests has an ip+path"},
		"nobody was logged in": {[]string{writeText(t, "a.log",
			strings.Repeat(request{at: time.Now(), ip: "a", path: "/"}.common()+"\n", 2))}, ByUser,
			"none of the 2 requests has a user"},
		"nothing but empty files": {[]string{writeText(t, "empty.log.gz", ""),
			writeText(t, "empty.log", "")}, ByIP, "each file is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t, tc.files, "1/1m")
			cfg.By = tc.by
			_, err := Run(cfg)
			require.ErrorContains(t, err, tc.want)
			assert.True(t, errors.As(err, new(*InputError)), "the user can correct it")
		})
	}
}

func TestFailuresMidway(t *testing.T) {
	lines := write(t, "a.log.gz", traffic(1, 5000), request.common)
	data, err := os.ReadFile(lines)
	require.NoError(t, err)
	_, err = Run(config(t, []string{writeText(t, "cut.log", string(data[:len(data)/2]))}, "1/1m"))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "a truncated gzip file is an error")
	assert.False(t, errors.As(err, new(*InputError)))

	for _, limit := range []string{"5/1h:log", "5/1h,1/1s"} {
		cfg := config(t, []string{write(t, "a.log", traffic(1, 1000), request.common)}, limit)
		cfg.MaxBuckets = 20
		_, err = Run(cfg)
		require.ErrorIs(t, err, weir.ErrFull, "a full table is an error")
		_, text, ok := strings.Cut(err.Error(), "--max-buckets ")
		require.True(t, ok, err)
		_, err = fmt.Sscan(text, &cfg.MaxBuckets)
		require.NoError(t, err)
		ran(t, cfg, "the value in the message is enough")
	}
}

func TestStdin(t *testing.T) {
	cfg := config(t, []string{Stdin}, "1/1h")
	cfg.Stdin = strings.NewReader(traffic(1, 1)[0].common()) // without an end of line
	got := ran(t, cfg)
	assert.EqualValues(t, 1, got.Requests)
	addsUp(t, got)
}

// TestFilesAreMerged checks that traffic cut into several files, in any order, plain or compressed,
// gives the same result.
func TestFilesAreMerged(t *testing.T) {
	requests := traffic(2, 3000)
	want := ran(t, config(t, []string{write(t, "a.log", requests, request.caddy)}, "5/1m"))

	rotated := []string{
		write(t, "c.log", requests[2000:], request.caddy),
		write(t, "a.log.gz", requests[:1000], request.caddy),
		write(t, "b.log", requests[1000:2000], request.caddy),
	}
	var servers [3][]request
	for i, r := range requests {
		servers[i%3] = append(servers[i%3], r)
	}
	balanced := []string{
		write(t, "1.log", servers[0], request.caddy), write(t, "2.log", servers[1], request.caddy),
		write(t, "3.log", servers[2], request.caddy),
	}
	for name, files := range map[string][]string{"rotated": rotated, "balanced": balanced} {
		got := ran(t, config(t, files, "5/1m"))
		want.Files = got.Files
		assert.Equal(t, want, got, name)
	}
}

// TestOneBadFileOfMany: the others are replayed, and the result says which file is missing.
func TestOneBadFileOfMany(t *testing.T) {
	good := write(t, "good.log", traffic(1, 10), request.common)
	whole, err := os.ReadFile(write(t, "a.log.gz", traffic(1, 5000), request.common))
	require.NoError(t, err)
	for name, part := range map[string]bool{good + ".not": false, t.TempDir(): false,
		writeText(t, "prose.log", "a\nb\n"):                   false,
		writeText(t, "cut.log", string(whole[:len(whole)/2])): true} {
		for _, files := range [][]string{{name, good}, {good, name}} {
			got := ran(t, config(t, files, "1/1m"), name)
			require.Len(t, got.Failed, 1, name)
			assert.Equal(t, name, got.Failed[0].Name)
			assert.Equal(t, part, got.Failed[0].Part, name)
			addsUp(t, got)
			if !part {
				assert.EqualValues(t, 10, got.Requests, name)
			}
		}
	}
}

// TestW3CBlocks: the fields at the beginning of a file hold for all of its blocks, whichever
// goroutine parses them, and only for that file.
func TestW3CBlocks(t *testing.T) {
	var b strings.Builder
	const n = 40_000
	b.WriteString("#Version: 1.0\n#Fields: date time c-ip cs-method cs-uri-stem sc-status\n")
	for i := range n {
		if i == n/2 {
			b.WriteString("#Fields: date time cs-method c-ip sc-status cs-uri-stem\n")
		}
		stamp := time.Unix(int64(1_700_000_000+i), 0).UTC().Format("2006-01-02 15:04:05")
		if i < n/2 {
			fmt.Fprintf(&b, "%s 10.0.0.%d GET /a 200\n", stamp, i%7)
		} else {
			fmt.Fprintf(&b, "%s GET 10.0.0.%d 200 /a\n", stamp, i%7)
		}
	}
	require.Greater(t, b.Len(), 8*blockSize)
	common := write(t, "good.log", traffic(1, 10), request.common)
	got := ran(t, config(t, []string{common, writeText(t, "u_ex.log", b.String()), common}, "1/1h"))
	assert.Zero(t, got.Unreadable.Count, got.Unreadable.Examples)
	assert.EqualValues(t, n+20, got.Requests)
}

func TestZstd(t *testing.T) {
	plain, err := os.ReadFile(write(t, "a.log", traffic(1, 3000), request.common))
	require.NoError(t, err)
	z, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	got := ran(t, config(t, []string{writeText(t, "a.zst", string(z.EncodeAll(plain, nil)))},
		"1/1h"))
	assert.EqualValues(t, 3000, got.Requests)
}

func TestStopEndsTheReading(t *testing.T) {
	const line = `192.0.2.1 - - [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5` + "\n"
	all := 100 * maxBlock / len(line)
	long, next := writeText(t, "long.log", strings.Repeat(line, all)), writeText(t, "next.log", line)
	stop := make(chan struct{})
	cfg := config(t, []string{next, long, next}, "5/1m")
	cfg.Force, cfg.Stop = true, stop
	cfg.Progress = func(p Progress) {
		if p.Lines > 1 && stop != nil {
			close(stop)
			stop = nil
		}
	}
	result := ran(t, cfg)
	assert.Greater(t, result.Requests, uint64(1))
	assert.Less(t, result.Requests, uint64(all))
	assert.Equal(t, result.Requests, result.Rules[0].Matched, "all that was read is decided on")
	require.Len(t, result.Failed, 2)
	assert.Equal(t, Failure{long, ErrInterrupted, true}, result.Failed[0])
	assert.Equal(t, Failure{next, ErrInterrupted, false}, result.Failed[1])

	closed := make(chan struct{})
	close(closed)
	cfg.Stop, cfg.Progress = closed, nil
	_, err := Run(cfg)
	assert.ErrorIs(t, err, ErrInterrupted, "nothing was read")
}
