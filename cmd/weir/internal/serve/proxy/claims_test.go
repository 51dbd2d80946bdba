package proxy

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// forged are the fields of addresses and identities that CDNs, clouds, balancers and frameworks
// document, by what documents them.
var forged = map[string]string{
	"RFC 7239, RFC 9440": "Forwarded Client-Cert Client-Cert-Chain",
	"de facto": "X-Forwarded X-Forwarded-For X-Forwarded-Host X-Forwarded-Proto X-Forwarded-Port X-Forwarded-Ssl " +
		"X-Forwarded-Scheme X-Forwarded-Server X-Forwarded-Prefix X-Forwarded-By X-Forwarded-Client-Ip Forwarded-For " +
		"Forwarded-For-Ip X-Real-Ip X-Real-Port X-Client-Ip Client-Ip X-Cluster-Client-Ip X-Remote-Ip X-Remote-Addr " +
		"Remote-Addr X-Originating-Ip X-Source-Ip X-True-Ip X-ProxyUser-Ip X-User-Ip X-Host X-Scheme X-Url-Scheme " +
		"Front-End-Https X-Client-Port X-Original-Forwarded-For X-Original-Host X-Original-Url X-Original-Uri " +
		"X-Original-Remote-Addr X-Rewrite-Url X-Override-Url X-Http-Host-Override",
	"Cloudflare": "Cf-Cert-Presented Cf-Cert-Verified Cf-Cert-Revoked Cf-Cert-Subject-Dn Cf-Cert-Issuer-Dn Cf-Cert-Serial Cf-Cert-Sha256 " +
		" CF-Connecting-IP CF-Connecting-IPv6 CF-Pseudo-IPv4 True-Client-IP Cf-Visitor " +
		"Cf-Access-Authenticated-User-Email Cf-Access-Jwt-Assertion Cf-Client-Cert-Sha256",
	"Akamai":             "True-Client-IP Akamai-Client-IP",
	"Fastly":             "Fastly-SSL Fastly-Client-IP",
	"Imperva":            "Incap-Client-IP",
	"Sucuri":             "X-Sucuri-ClientIP",
	"DigitalOcean":       "DO-Connecting-IP",
	"Netlify":            "X-Nf-Client-Connection-Ip X-BB-IP",
	"Vercel":             "X-Vercel-Proxied-For X-Vercel-Ip-Country X-Vercel-Forwarded-For X-Vercel-Proxied-For-Ip",
	"Alibaba Cloud":      "X-Client-Scheme Ali-Cdn-Real-Ip Ali-CDN-Real-Port",
	"Tencent EdgeOne":    "EO-Connecting-IP EO-Client-IP",
	"ChinaCache, Wangsu": "Cdn-Src-Ip Cdn-Real-Ip",
	"Fly.io":             "Fly-Client-IP Fly-Forwarded-Port",
	"Amazon CloudFront": "CloudFront-Viewer-Cert-Serial-Number CloudFront-Viewer-Cert-Subject CloudFront-Viewer-Cert-Issuer " +
		"CloudFront-Viewer-Cert-Present CloudFront-Viewer-Cert-Pem CloudFront-Viewer-TLS CloudFront-Viewer-Address CloudFront-Forwarded-Proto",
	"Amazon ALB": "X-Amzn-Oidc-Data X-Amzn-Oidc-Identity X-Amzn-Oidc-Accesstoken X-Amzn-Mtls-Clientcert " +
		"X-Amzn-Mtls-Clientcert-Subject X-Amzn-Mtls-Clientcert-Leaf X-Amzn-Mtls-Clientcert-Serial-Number",
	"Google": "X-Appengine-User-Email X-Appengine-User-Id X-Appengine-User-Is-Admin X-Appengine-Https " +
		" X-Goog-Authenticated-User-Email X-Goog-Authenticated-User-Id X-Goog-Iap-Jwt-Assertion " +
		"X-Appengine-User-Ip X-Appengine-Remote-Addr X-Endpoint-Api-Userinfo X-Apigateway-Api-Userinfo " +
		"X-Client-Cert-Present X-Client-Cert-Subject-Dn",
	"Azure": "X-Ms-Forwarded-Client-Ip Disguised-Host X-WAWS-Unencoded-URL X-Ms-Token-Aad-Access-Token " +
		" X-Azure-ClientIP X-Azure-SocketIP X-Ms-Client-Principal X-Ms-Client-Principal-Id " +
		"X-Ms-Client-Principal-Name X-Ms-Client-Principal-Idp X-Ms-Token-Aad-Id-Token X-ARR-ClientCert X-ARR-SSL",
	"Envoy":            "X-Envoy-Internal X-Envoy-Original-Path X-Envoy-Ip-Tags X-Envoy-Downstream-Service-Cluster X-Envoy-External-Address X-Forwarded-Client-Cert",
	"Apache, WebLogic": "WL-Proxy-Client-Keysize Proxy-Remote-User Proxy-Client-IP WL-Proxy-Client-IP WL-Proxy-Client-Cert WL-Proxy-SSL WL-Proxy-Client-Port",
	"WebSphere":        "$WSSC $WSSN $WSSP $WSCS $WSAT $WSPT $WSSI $WSRA $WSRU $WSRH $WSCC $WSIS $WSPR",
	"nginx, HAProxy": "X-SSL-Client-SHA1 X-SSL-Issuer X-SSL-Client-NotBefore X-SSL-Verified X-SSL-DN X-Email " +
		" X-SSL-Client-Verify X-SSL-Client-Cert X-SSL-Client-DN X-SSL-Client-CN X-SSL-Client-S-DN " +
		"X-SSL-Client-I-DN X-SSL-Client-Serial X-SSL-Client-Fingerprint X-SSL-Cert X-SSL Ssl-Client-Cert " +
		"X-Client-Verify X-Client-Dn X-Client-Cn X-Client-Serial X-Tls-Client-Cert X-Client-Cert",
	"mod_ssl":       "SSL_CLIENT_S_DN SSL_CLIENT_VERIFY SSL_CLIENT_CERT",
	"Ingress-NGINX": "Ssl-Client-Subject-Dn Ssl-Client-Issuer-Dn Ssl-Client-Verify",
	"Traefik":       "X-Forwarded-Tls-Client-Cert X-Forwarded-Tls-Client-Cert-Info X-Forwarded-User",
	"oauth2-proxy": "X-Auth-Request-User X-Auth-Request-Email X-Auth-Request-Groups " +
		"X-Auth-Request-Preferred-Username X-Auth-Request-Access-Token X-Forwarded-Email X-Forwarded-Groups " +
		"X-Forwarded-Preferred-Username X-Forwarded-Access-Token",
	"Authelia":            "Remote-User Remote-Groups Remote-Name Remote-Email",
	"Authentik":           "X-Authentik-Username X-Authentik-Groups X-Authentik-Email X-Authentik-Uid X-Authentik-Jwt",
	"Keycloak Gatekeeper": "X-Auth-Username X-Auth-Userid X-Auth-Email X-Auth-Roles X-Auth-Groups X-Auth-Subject",
	"Pomerium":            "X-Pomerium-Jwt-Assertion X-Pomerium-Claim-Email",
	"Tailscale":           "Tailscale-App-Capabilities Tailscale-Tailnet Tailscale-User-Login Tailscale-User-Name Tailscale-User-Profile-Pic",
	"Vouch":               "X-Vouch-User X-Vouch-Idp-Claims-Groups X-Vouch-Idp-Accesstoken",
	"Kong": "X-Consumer-Id X-Consumer-Username X-Consumer-Custom-Id X-Consumer-Groups X-Credential-Identifier " +
		"X-Anonymous-Consumer X-Authenticated-Userid X-Authenticated-Scope X-Authenticated-Groups",
	"Grafana, Kubernetes": "X-Webauth-User X-Webauth-Email X-Webauth-Groups X-Remote-User X-Remote-Group X-Remote-Extra-Scopes",
	"Ory Oathkeeper":      "X-User X-User-Id",
	"mod_auth_openidc":    "OIDC_CLAIM_sub OIDC-Claim-Email OIDC_access_token OIDC_id_token",
	"Kubernetes":          "Impersonate-User Impersonate-Group Impersonate-Uid Impersonate-Extra-Scopes",
	"OpenStack":           "X-Identity-Status X-User-Name X-Roles",
	"caddy-security":      "X-Token-User-Email X-Token-User-Name X-Token-User-Roles X-Token-Subject",
	"Istio":               "X-Jwt-Claim-Foo X-Jwt-Payload",
	"code that guesses":   "X-Forward-For Forwarder-For Forwarding-For True-Client X-Coming-From Ip-Address Http-X-Forwarded-For",
	"Shibboleth, SAML":    "Shib-Session-Id Shib-Identity-Provider Eppn Mellon-NameID",
	"SiteMinder, WebSEAL": "SM_AUTHDIRNAME SM_AUTHTYPE SM_UNIVERSALID SM_SERVERSESSIONID HTTP_SM_USER Iv-User-L Iv-Remote-Address SM-User SM_USERDN Iv-User Iv-Groups Iv-Creds",
}

// free are fields that clients send by themselves, though some look like a claim.
var free = strings.Fields("Accept Accept-Ch Authorization Cookie Content-Md5 Max-Forwards Origin Referer " +
	"Sec-Fetch-User Sec-Websocket-Key User-Agent Via X-Api-Key X-Auth-Key X-Auth-Token X-Client-Version " +
	"X-Csrf-Token X-Goog-Api-Key X-Htmlsource X-Membership X-Request-Id X-Skip X-Step-Name X-User-Agent " +
	"X-Voucher X-Zip Grpc-Timeout Idempotency-Key Stripe-Signature X-Hub-Signature-256 X-Amz-Date " +
	"X-Shipping-Address X-Real-Price X-Device-Id X-Session-Id X-Access-Token X-Id-Token X-Concert X-Amz-Meta-Iv " +
	"X-Tenant")

// No field that claims an address or an identity reaches the upstream from a client, in any
// spelling that CGI maps to the same name. From a trusted proxy each does, and from a client each
// that is named by Pass.
func TestForgedClaimsDoNotPass(t *testing.T) {
	const lie = "6.6.6.6"
	cfg := config(t, "100000/1d")
	cfg.Upstream = upstreamOf(t, cgi)
	cfg.Strip = []string{"x_tenant"}
	s := serve(t, cfg)
	cfg.Strip, cfg.Trust = nil, loopback
	trusting := serve(t, cfg)
	cfg.Trust, cfg.Pass = nil, []string{"X-User", "x-client-ip"}
	passing := serve(t, cfg)
	n := 0
	for of, names := range forged {
		for _, name := range strings.Fields(names) {
			n++
			var lies []string
			for _, spelling := range spellings(name) {
				lies = append(lies, spelling, lie)
			}
			_, got := send(t, "GET", s.front.URL, nil, lies...)
			require.NotContains(t, got, lie, "%s of %s", name, of)
			name = http.CanonicalHeaderKey(name)
			if _, got = send(t, "GET", trusting.front.URL, nil, name, lie); name == plainName(name) &&
				name != "Forwarded" && name != "X-Forwarded-For" {
				assert.Contains(t, got, lie, "%s of %s, from a trusted proxy", name, of)
			}
			_, got = send(t, "GET", passing.front.URL, nil, name, lie)
			assert.Equal(t, name == "X-User" || name == "X-Client-Ip", strings.Contains(got, lie), name)
		}
	}
	assert.Greater(t, n, 220)
	for _, name := range free {
		_, got := send(t, "GET", s.front.URL, nil, name, lie)
		assert.Equal(t, name != "X-Tenant", strings.Contains(got, lie), name)
	}
}

// A field of a user that callers are told apart by is a client's own. One of an address is not.
func TestTheFieldThatTellsCallersApartPasses(t *testing.T) {
	for name, passes := range map[string]bool{"X-User-Id": true, "X-Client-Ip": false} {
		cfg := by(t, config(t, "100000/1d"), "header:"+name)
		cfg.Upstream = upstreamOf(t, cgi)
		_, got := send(t, "GET", serve(t, cfg).front.URL, nil, name, "6.6.6.6", "X-User", "6.6.6.7")
		assert.Equal(t, passes, strings.Contains(got, "6.6.6.6"), name)
		assert.NotContains(t, got, "6.6.6.7")
	}
}

// docs/proxy.md has the words, the parts and the names of claims, and the fields that are kept.
func TestClaimsAreDocumented(t *testing.T) {
	data, err := os.ReadFile("../../../../../docs/proxy.md")
	require.NoError(t, err)
	text := strings.Join(strings.Fields(string(data)), " ")
	for _, c := range claimed {
		assert.True(t, strings.Contains(text, c.doc()), c.doc())
	}
	assert.True(t, strings.Contains(text, quoted(kept, "%s")), quoted(kept, "%s"))
	for name := range usualFields {
		assert.True(t, slices.Contains(kept, name) || claimOf(name) == claimsNothing, name)
	}
}

// doc describes the fields of a kind, as the docs do.
func (c *claims) doc() string {
	s := "a word " + quoted(c.words, "%s") + ", " + quoted(c.parts, "…%s…")
	if len(c.names) > 0 {
		s += ", " + quoted(c.names, "%s")
	}
	return s
}

// quoted lists texts as code.
func quoted(texts []string, format string) string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = "`" + fmt.Sprintf(format, text) + "`"
	}
	return strings.Join(all, ", ")
}

// Each spelling of a field claims the same, with other letters or signs between.
func FuzzClaims(f *testing.F) {
	for _, names := range forged {
		for _, name := range strings.Fields(names) {
			f.Add(name, byte('_'))
		}
	}
	f.Fuzz(func(t *testing.T, name string, sign byte) {
		plain := plainName(name)
		require.Equal(t, plain, plainName(plain))
		if 'a' <= sign|0x20 && sign|0x20 <= 'z' || '0' <= sign && sign <= '9' {
			return
		}
		for _, other := range []string{strings.ToUpper(plain), strings.ReplaceAll(plain, "-", string(rune(sign)))} {
			require.Equal(t, claimOf(plain), claimOf(plainName(other)), fmt.Sprintf("%q and %q", plain, other))
		}
	})
}
