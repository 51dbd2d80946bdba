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

// A claims is a kind of fields, by their names in lower case, without hyphens: no list of CDNs,
// clouds and frameworks is whole. docs/proxy.md has this table.
type claims struct {
	of    claim
	parts []string // of names
	names []string // whole ones
}

// claimed are tried in this order. A last word "ip" claims an address too.
var claimed = []claims{
	{of: claimsAddress, parts: []string{"forwarded", "clientip", "clientaddr", "connectingip",
		"connectionip", "realip", "trueip", "remoteip", "remoteaddr", "sourceip", "srcip", "originip",
		"originatingip", "userip", "userhostaddr", "peerip", "peeraddr", "viewerip", "vieweraddr",
		"externaladdr", "socketip", "pseudoip", "visitorip", "callerip", "requesterip"}},
	{of: claimsConnection, parts: []string{"clientcert", "clientverify", "clientdn", "clientsdn",
		"clientidn", "clientcn", "clientserial", "clientfingerprint", "clientsubject", "clientissuer",
		"sslclient", "sslcert", "sslissuer", "sslsubject", "tlsclient", "tlscert", "peercert",
		"amznmtls", "xmtls", "x509", "xoriginal", "rewriteurl", "overrideurl", "hostoverride",
		"urlscheme", "frontendhttps", "realport", "clientport", "remoteport", "wlproxy", "arrssl",
		"cfvisitor"},
		names: []string{"xscheme", "xhost", "xssl"}},
	{of: claimsUser, parts: []string{"remoteuser", "remotename", "remoteemail", "remotegroup",
		"remoteextra", "authrequest", "authenticated", "authentik", "authuser", "authname", "authemail",
		"authgroup", "authrole", "authsubject", "authpreferred", "webauth", "iapjwt", "oidcdata",
		"oidcidentity", "oidcaccess", "oidcclaim", "oidcid", "clientprincipal", "xmstoken", "accessjwt",
		"jwtassertion", "jwtpayload", "jwtclaim", "userinfo", "pomeriumclaim", "tailscaleuser",
		"vouchuser", "vouchidp", "xconsumer", "anonymousconsumer", "credentialidentifier", "loginuser",
		"currentuser", "shibsession", "shibidentity", "melloncookie", "mellonnameid"},
		names: []string{"xuser", "xuserid", "xusername", "xuseremail", "xusergroups", "xuserroles",
			"smuser", "smuserdn", "ivuser", "ivgroups", "ivcreds", "eppn", "wsra", "wsrh", "wsru", "wscc",
			"wsis", "wspr"}},
}

// usualFields are fields that clients send, and which claim nothing. To find one here takes less
// time than to look for the parts.
var usualFields = setOf("Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language",
	"Access-Control-Request-Headers", "Access-Control-Request-Method", "Authorization",
	"Cache-Control", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Cookie",
	"Dnt", "Expect", "Host", "If-Match", "If-Modified-Since", "If-None-Match", "Idempotency-Key",
	"Keep-Alive", "Origin", "Pragma", "Priority", "Range", "Referer", "Sec-Ch-Ua", "Sec-Ch-Ua-Mobile",
	"Sec-Ch-Ua-Platform", "Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site", "Sec-Fetch-User",
	"Te", "Traceparent", "Tracestate", "Transfer-Encoding", "Upgrade", "Upgrade-Insecure-Requests",
	"User-Agent", "Via", "X-Api-Key", "X-Auth-Key", "X-Auth-Token", "X-Csrf-Token", "X-Request-Id",
	"X-Requested-With", "X-User-Agent")

// claimOf returns what a field claims whose plainName is given.
func claimOf(plain string) claim {
	var room [64]byte
	squashed := room[:0]
	for i := range len(plain) {
		switch c := plain[i]; {
		case 'A' <= c && c <= 'Z':
			squashed = append(squashed, c+'a'-'A')
		case c != '-':
			squashed = append(squashed, c)
		}
	}
	name := string(squashed)
	if strings.HasSuffix(plain, "-Ip") {
		return claimsAddress
	}
	for i := range claimed {
		if claimed[i].have(name) {
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
