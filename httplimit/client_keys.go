package httplimit

// sharedPart begins the part of a joined key that a client's keys beyond the bound share. No
// extracted key collides with such a key, which has three parts: extracted ones have two.
var sharedPart = string(appendPart(nil, "shared"))

// sharedKey begins such a key where the others are the extracted ones, of which none begins so.
const sharedKey = "\x00shared"

// oneKeyEach reports whether e extracts one key only for each client address.
func oneKeyEach(e Extractor) bool {
	ip, ok := e.(IP)
	return ok && ip.bits <= defaultIPv6Bits
}

// findIP returns the first IP in e.
func findIP(e Extractor) (IP, bool) {
	switch e := e.(type) {
	case IP:
		return e, true
	case join:
		for _, part := range e {
			if ip, ok := findIP(part); ok {
				return ip, true
			}
		}
	}
	return IP{}, false
}
