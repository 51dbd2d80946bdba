package proxy

import "strings"

// claim is what a field says of its client, of whom only a trusted proxy may say it.
type claim int

// The claims.
const (
	claimsNothing claim = iota
	claimsAddress
	claimsConnection // or its certificate, or the host and the URL that were requested
	claimsUser
)

// A claims is a kind of fields, by their names: no list of CDNs, clouds and frameworks is whole.
// docs/proxy.md has this table. A name that begins with a sign, as $WSRA, claims a connection too.
type claims struct {
	of    claim
	words []string // between hyphens, as http.CanonicalHeaderKey writes them
	parts []string // of names in lower case, without hyphens
	names []string // whole ones, in the same form
}

// claimed are tried in this order.
var claimed = []claims{
	{of: claimsAddress, words: []string{"Ip", "Ipv4", "Ipv6"},
		parts: []string{"forward", "proxiedfor", "comingfrom", "clientip", "clientaddr", "trueclient",
			"realip", "remoteip", "remoteaddr", "sourceip", "sourceaddr", "userip", "socketip", "hostaddr",
			"ipaddr", "peeraddr", "vieweraddr"}},
	{of: claimsConnection, words: []string{"Cert", "Certificate", "Dn", "Https", "Mtls", "Ssl", "Tls"},
		parts: []string{"clientcert", "clientverify", "clientcn", "clientserial", "clientfingerprint",
			"clientsubject", "clientissuer", "x509", "xoriginal", "rewriteurl", "overrideurl",
			"unencodedurl", "hostoverride", "disguisedhost", "remotehost", "urlscheme", "clientscheme",
			"realport", "clientport", "remoteport", "wlproxy", "cfvisitor", "xenvoy"},
		names: []string{"xscheme", "xhost"}},
	{of: claimsUser, words: []string{"Appengine", "Impersonate", "Mellon", "Shib", "Sm", "Vouch"},
		parts: []string{"remote", "authrequest", "authenticated", "authentik", "authuser", "authname",
			"authemail", "authgroup", "authrole", "authsubject", "authpreferred", "webauth", "oidc",
			"clientprincipal", "xmstoken", "jwtassertion", "jwtpayload", "jwtclaim", "userinfo",
			"identitystatus", "pomerium", "tailscale", "xconsumer", "anonymousconsumer",
			"credentialidentifier", "loginuser", "currentuser", "tokenuser", "tokensubject", "ivuser",
			"ivgroup", "ivcred"},
		names: []string{"xuser", "xuserid", "xusername", "xuseremail", "xusergroups", "xuserroles",
			"xemail", "xgroups", "xroles", "eppn"}},
}

// claimedWords has the words of claimed.
var claimedWords = func() map[string]claim {
	of := make(map[string]claim)
	for _, c := range claimed {
		for _, word := range c.words {
			of[word] = c.of
		}
	}
	return of
}()

// kept are fields that pass though they look like a claim, or hold a secret that the upstream
// verifies. docs/proxy.md has them.
var kept = []string{"Authorization", "Cookie", "Max-Forwards", "Via", "X-Access-Token", "X-Api-Key",
	"X-Auth-Key", "X-Auth-Token", "X-Id-Token"}

// usualFields are kept and other fields that clients send, and which claim nothing. To find one
// here takes less time than to look for the parts.
var usualFields = setOf(append(kept, "Accept", "Accept-Charset", "Accept-Encoding",
	"Accept-Language",
	"Access-Control-Request-Headers", "Access-Control-Request-Method",
	"Cache-Control", "Connection", "Content-Encoding", "Content-Length", "Content-Type",
	"Dnt", "Expect", "Host", "If-Match", "If-Modified-Since", "If-None-Match", "Idempotency-Key",
	"Keep-Alive", "Origin", "Pragma", "Priority", "Range", "Referer", "Sec-Ch-Ua", "Sec-Ch-Ua-Mobile",
	"Sec-Ch-Ua-Platform", "Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site", "Sec-Fetch-User",
	"Te", "Traceparent", "Tracestate", "Transfer-Encoding", "Upgrade", "Upgrade-Insecure-Requests",
	"User-Agent", "X-Csrf-Token", "X-Request-Id",
	"X-Requested-With", "X-User-Agent")...)

// claimOf returns what a field claims whose plainName is given.
func claimOf(plain string) claim {
	if plain == "" || plain[0] == '-' {
		return claimsConnection
	}
	var room [64]byte
	squashed := room[:0]
	of := 0 // a bit for each claim of a word
	for word := range strings.SplitSeq(plain, "-") {
		of |= 1 << claimedWords[word]
		for i := range len(word) {
			squashed = append(squashed, word[i]|0x20) // letters and digits only
		}
	}
	name := string(squashed)
	for i := range claimed {
		if of>>claimed[i].of&1 != 0 || claimed[i].have(name) {
			return claimed[i].of
		}
	}
	return claimsNothing
}

func (c *claims) have(name string) bool {
	for _, whole := range c.names {
		if name == whole {
			return true
		}
	}
	for _, part := range c.parts {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}
