package address

import (
	"net"
	"net/netip"
	"testing"
)

func TestOf(t *testing.T) {
	tests := []struct {
		addr string
		want Class
	}{
		{"8.8.8.8", Public}, {"2606:4700::1111", Public}, {"172.32.0.1", Public},
		{"100.63.255.255", Public}, {"100.128.0.1", Public},
		{"10.1.2.3", Private}, {"172.16.0.1", Private}, {"172.31.255.255", Private}, {"192.168.1.1", Private},
		{"100.64.0.1", Private}, {"100.127.255.255", Private}, {"198.19.0.1", Private},
		{"127.8.8.8", Loopback}, {"0.0.0.0", Loopback}, {"0.1.2.3", Loopback}, {"::", Loopback}, {"::1", Loopback},
		{"::ffff:10.0.0.1", Private}, {"::ffff:8.8.8.8", Public},
		{"169.254.169.254", LinkLocal}, {"169.254.170.2", LinkLocal}, {"fe80::1", LinkLocal},
		{"168.63.129.16", Metadata}, {"100.100.100.200", Metadata}, {"fd00:ec2::254", Metadata}, {"fd00:ec2::23", Metadata}, {"fd00:c1::a9fe:a9fe", Metadata}, {"fd00:42::42", Metadata}, {"192.0.0.192", Metadata},
		{"224.0.0.1", Multicast}, {"ff02::1", Multicast},
		{"255.255.255.255", Reserved}, {"240.0.0.1", Reserved}, {"192.0.0.1", Reserved},
		{"192.0.2.1", Public}, {"203.0.113.80", Public}, {"2001:db8::1", Public},
		{"fd12::1", Private}, {"fec0::1", Private},
		{"64:ff9b::7f00:1", Loopback}, {"64:ff9b::a9fe:a9fe", LinkLocal}, {"64:ff9b::808:808", Public}, {"64:ff9b:1::1", Reserved},
		{"2002:7f00:1::", Loopback}, {"2002:a00:1::1", Private},
		{"2001::1", Reserved}, {"::7f00:1", Reserved}, {"100::1", Reserved}, {"5f00::1", Reserved},
	}
	for _, tt := range tests {
		if got := Of(netip.MustParseAddr(tt.addr)); got != tt.want {
			t.Errorf("Of(%s) = %q, want %q", tt.addr, got, tt.want)
		}
	}
}

func TestOfHost(t *testing.T) {
	own := []net.Addr{&net.IPNet{IP: net.ParseIP("203.0.113.7"), Mask: net.CIDRMask(24, 32)}, &net.IPNet{IP: net.ParseIP("2001:db8::7"), Mask: net.CIDRMask(64, 128)}}
	for addr, want := range map[string]Class{
		"203.0.113.7": OwnHost, "::ffff:203.0.113.7": OwnHost, "64:ff9b::cb00:7107": OwnHost, "2001:db8::7": OwnHost,
		"203.0.113.8": Public, "2001:db8::8": Public,
	} {
		if got := OfHost(netip.MustParseAddr(addr), own); got != want {
			t.Errorf("OfHost(%s) = %q, want %q", addr, got, want)
		}
	}
}
