# A peer that never answers: polls with a timeout for a datagram or a connection. Reports the address, and the time that it waited.
use strict; use warnings; use IO::Poll qw(POLLIN POLLOUT); use IO::Socket::INET; use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);
my ($what, $way, $count, $ms) = @ARGV;
my $mute = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1, Proto => $what eq 'udp' ? 'udp' : 'tcp') if $what ne 'udp';
$mute = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Proto => 'udp') if $what eq 'udp';
my $to = '127.0.0.1:' . $mute->sockport;
my ($waited, $from, @full) = (0);
for ($what eq "connect" ? 1 .. 3 : ()) {
    $from = clock_gettime(CLOCK_MONOTONIC);
    my $one = IO::Socket::INET->new(PeerAddr => $to, Timeout => 0.1);
    if ($one) { push @full, $one } else { $waited += clock_gettime(CLOCK_MONOTONIC) - $from }
}
my $c = IO::Socket::INET->new(PeerAddr => $to, Proto => $what eq 'udp' ? 'udp' : 'tcp', $what eq 'connect' ? (Blocking => 0) : ()) // die;
syswrite $c, "q\n" if $what ne 'connect';
for (1 .. $count) {
    $from = clock_gettime(CLOCK_MONOTONIC);
    if ($way eq 'poll') { my $poll = IO::Poll->new; $poll->mask($c => $what eq 'connect' ? POLLOUT : POLLIN); $poll->poll($ms / 1000) }
    else { my $bits = ''; vec($bits, fileno $c, 1) = 1; my ($r, $w) = $what eq 'connect' ? (undef, $bits) : ($bits, undef); select $r, $w, undef, $ms / 1000 }
    $waited += clock_gettime(CLOCK_MONOTONIC) - $from;
}
print "to $to waited $waited\n";
