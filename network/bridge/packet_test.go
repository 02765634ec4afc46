package bridge

import (
	"encoding/binary"
	"hash/crc32"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// sendFrame sends a UDP packet of any source and destination to a neighbour.
func (l *lab) sendFrame(ns *os.File, dev string, to net.HardwareAddr, src, dst netip.Addr, port uint16) {
	l.t.Helper()
	l.sendFrames(ns, dev, to, src, dst, port, 1)
}

// sendFrames sends such packets from so many ports.
func (l *lab) sendFrames(ns *os.File, dev string, to net.HardwareAddr, src, dst netip.Addr, port uint16, n int) {
	l.t.Helper()
	l.in(ns, func() error {
		iface, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		for i := range n {
			frame := append(append([]byte{}, to...), iface.HardwareAddr...)
			frame = append(frame, 0x08, 0x00)
			frame = append(frame, udpPacket(src, dst, uint16(40000+i), port, "hello")...)
			if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: iface.Index, Halen: 6, Addr: [8]byte(append(append([]byte{}, to...), 0, 0))}); err != nil {
				return err
			}
		}
		return nil
	})
}

func udpPacket(src, dst netip.Addr, from, to uint16, text string) []byte {
	ip := make([]byte, 20)
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(ip[2:], uint16(20+8+len(text)))
	copy(ip[12:], src.AsSlice())
	copy(ip[16:], dst.AsSlice())
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum&0xffff+sum>>16))
	udp := make([]byte, 8) // without a checksum, which IPv4 allows
	binary.BigEndian.PutUint16(udp, from)
	binary.BigEndian.PutUint16(udp[2:], to)
	binary.BigEndian.PutUint16(udp[4:], uint16(8+len(text)))
	return append(append(ip, udp...), text...)
}

// sctpInit is the first packet of an association (RFC 9260).
func sctpInit(from, to uint16) []byte {
	b := make([]byte, 12+20)
	binary.BigEndian.PutUint16(b, from)
	binary.BigEndian.PutUint16(b[2:], to)
	b[12] = 1 // INIT
	binary.BigEndian.PutUint16(b[14:], 20)
	binary.BigEndian.PutUint32(b[16:], 0x1234) // initiate tag
	binary.BigEndian.PutUint32(b[20:], 1<<16)  // window
	binary.BigEndian.PutUint16(b[24:], 1)      // streams
	binary.BigEndian.PutUint16(b[26:], 1)
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return b
}
