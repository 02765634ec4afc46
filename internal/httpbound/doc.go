// Package httpbound limits the resources of this module's HTTP servers: connections,
// request heads, concurrent requests of HTTP/2, and resources that clients share.
//
// A [Server] is an http.Server with limits for request heads, TLS handshakes and
// connections. At the limit of connections, it closes a connection without a running
// request to admit a new one, first those that never had a request. It never closes a
// connection with a running request for another one.
//
// A [Pool] has a number of units that clients share, such as concurrent requests or bytes
// of responses. A client gets a unit at once or not at all. One user gets at most a share
// of the units, and some units are reserved for administrators and for root of the machine.
package httpbound
