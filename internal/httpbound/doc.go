// Package httpbound limits the resources of this module's HTTP servers: connections,
// request heads, concurrent requests of HTTP/2, and units that clients share.
//
// A [Server] is an http.Server whose heads, handshakes and connections are bounded. At
// the limit, a connection without a running request is closed to admit a new one;
// connections that never had a request are closed first. A connection with a running
// request is never closed for another one.
//
// A [Pool] has a number of units that clients share, such as places of requests or
// bytes of answers. Nobody waits for a unit. No user gets more than a share, and
// reserves keep some units for administrators and for root of the machine.
package httpbound
