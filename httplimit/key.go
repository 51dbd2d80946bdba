package httplimit

import "strconv"

// appendPart appends one part of a joined key, so that appending the parts one after the other gives [weir.JoinKey] of
// them, without the strings in between; TestAppendPartIsJoinKey holds the two together.
func appendPart[T string | []byte](dst []byte, part T) []byte {
	dst = strconv.AppendInt(dst, int64(len(part)), 10)
	dst = append(dst, ':')
	return append(dst, part...)
}
