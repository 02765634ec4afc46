// Package httpbound has the bounds of this module's HTTP servers: connections, heads,
// requests of HTTP/2, and what clients share.
//
// A [Server] is an http.Server whose heads, handshakes and connections are bounded. A
// connection with a request at work is never closed for another one; one without
// makes room for a new one, those that never had a request first.
//
// A [Pool] has a number of units that clients share, such as places of requests or
// bytes of answers. Nobody waits for a unit. No user gets more than a share, and
// reserves keep some units for administrators and for root of the machine.
package httpbound
