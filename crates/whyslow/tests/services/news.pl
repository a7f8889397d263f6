# A service that tells its one subscriber something now and then, of its own accord. Its input's end is its own.
# Arguments: names of the two, how many ms it thinks.
use strict; use warnings; use IO::Socket::INET; use Time::HiRes qw(sleep);
$| = 1;
my ($tells, $listens, $ms) = @ARGV;
my $l;
for (1 .. 99) { $l = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 10000 + int rand 20000, Listen => 2) and last }
my @children;
sub role { my ($name, $does) = @_; my $pid = fork // die; if ($pid) { push @children, $pid; return } $0 = $name; $does->(); exit }
role $tells, sub { my $c = $l->accept; while (1) { sleep $ms / 1000; syswrite $c, "news\n" } };
role $listens, sub { my $c = IO::Socket::INET->new(PeerAddr => '127.0.0.1:' . $l->sockport); syswrite $c, "hello\n"; 1 while sysread $c, my $word, 99 };
print 'up ', $l->sockport, "\n";
1 while <STDIN>;
kill 9, @children;
