package redistest

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
)

// readCommand reads one command, an array of bulk strings, and returns its bytes and its words.
func readCommand(in *bufio.Reader) (raw []byte, words []string, err error) {
	raw, n, err := readHead(in, nil, '*')
	if err != nil {
		return nil, nil, err
	}
	for range n {
		var size int
		if raw, size, err = readHead(in, raw, '$'); err != nil {
			return nil, nil, err
		}
		if raw, err = readBytes(in, raw, size+2); err != nil {
			return nil, nil, err
		}
		words = append(words, string(raw[len(raw)-size-2:len(raw)-2]))
	}
	return raw, words, nil
}

// readHead appends a line to raw and returns the number after its first byte, which must be kind.
func readHead(in *bufio.Reader, raw []byte, kind byte) ([]byte, int, error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return nil, 0, err
	}
	if len(line) < 4 || line[0] != kind {
		return nil, 0, fmt.Errorf("redistest: %q where %q is due", line, kind)
	}
	n, err := strconv.Atoi(string(line[1 : len(line)-2]))
	return append(raw, line...), n, err
}

func readBytes(in *bufio.Reader, raw []byte, n int) ([]byte, error) {
	raw = append(raw, make([]byte, n)...)
	_, err := io.ReadFull(in, raw[len(raw)-n:])
	return raw, err
}

// readReply appends one reply to raw, with any push messages that come before it.
func readReply(in *bufio.Reader, raw []byte) ([]byte, error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	raw = append(raw, line...)
	if len(line) < 3 {
		return nil, fmt.Errorf("redistest: reply %q", line)
	}
	elements := 1
	switch line[0] {
	case '+', '-', ':', '_', ',', '#', '(':
		return raw, nil
	}
	n, err := strconv.Atoi(string(line[1 : len(line)-2]))
	if err != nil || n < 0 {
		return raw, err
	}
	switch line[0] {
	case '$', '=', '!':
		return readBytes(in, raw, n+2)
	case '%', '|':
		elements = 2
	}
	for range n * elements {
		if raw, err = readReply(in, raw); err != nil {
			return nil, err
		}
	}
	if line[0] == '>' || line[0] == '|' {
		return readReply(in, raw)
	}
	return raw, nil
}
